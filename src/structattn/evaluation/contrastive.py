"""Whether a model finds a translation more likely than the same with an error (You et al. 2020, section 6.2)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from structattn.data.contrastive import Contrast
from structattn.evaluation.analyses import write_analysis
from structattn.evaluation.translation import pair_scorer_of
from structattn.inference.runs import TrainedRun
from structattn.metrics.proportions import Proportion, proportion
from structattn.support.progress import progress

BATCH_TOKENS = 4096
FARTHEST = 15  # words; what is farther apart is counted together, as LingEval97's own tool does


@dataclass(frozen=True)
class ContrastiveScores:
    """How often the reference was strictly more likely; equally likely counts as wrong.

    Args:
        types: of each type of error, in the order in which they come.
        distances: type -> words between what must agree, ``0`` to ``15`` and ``>15`` -> those pairs; of types that
            tell distances.
        per_token: whether nats per token were compared rather than those of the whole translation.
    """

    types: dict[str, Proportion]
    distances: dict[str, dict[str, Proportion]]
    per_token: bool


def contrastive_nats(
    run: TrainedRun, contrasts: Sequence[Contrast], *, per_token: bool = False, batch_tokens: int = BATCH_TOKENS
) -> Float[np.ndarray, "pairs 2"]:
    """-log p(translation | source) of the reference and of the contrastive translation, <eos> counted.

    Args:
        run: a translation run; lines become ids, and rare words spellings, as they did for training.
        contrasts: the pairs.
        per_token: divide by the number of tokens, <eos> counted; characters of spellings are none.
        batch_tokens: the largest padded size of a batch.

    Cost: each different translation of a source is scored once, so that what looks the same to the model is equally
    likely; memory for batch_tokens * classes numbers.

    Raises:
        UsageError: the run is no translation run.
        DataError: a line has no encoding, or is too long for the model; the message names it.
    """
    scorer = replace(pair_scorer_of([run]), batch_tokens=batch_tokens)
    coded = [
        scorer.coded(each.source, text, (each.path, each.path), each.line)
        for each in contrasts
        for text in (each.reference, each.contrastive)
    ]
    different = list(dict.fromkeys(coded))
    with progress("Scoring translations", len(different), "translations") as advance:
        found = scorer(different, advance)
    values = [each.nats / each.tokens if per_token else each.nats for each in found]
    nats = dict(zip(different, values, strict=True))
    return np.array([nats[each] for each in coded], np.float64).reshape(-1, 2)


def contrastive_scores(
    contrasts: Sequence[Contrast], nats: Float[np.ndarray, "pairs 2"], *, per_token: bool = False
) -> ContrastiveScores:
    """How often the reference's nats are fewer, by type and by distance.

    Args:
        contrasts: the pairs.
        nats: of their two translations.
        per_token: what the nats are, for the record.
    """
    right = nats[:, 0] < nats[:, 1]
    types = _grouped([each.kind for each in contrasts], right)
    distances = {}
    for kind in types:
        told = [n for n, each in enumerate(contrasts) if each.kind == kind and each.distance is not None]
        told.sort(key=lambda n: contrasts[n].distance or 0)
        if told:
            distances[kind] = _grouped([_distance(contrasts[n]) for n in told], right[told])
    return ContrastiveScores(types, distances, per_token)


def write_contrastive(run: TrainedRun, name: str, scores: ContrastiveScores) -> Path:
    """Keep the scores as ``analyses/contrastive-NAME.json`` in the run's folder, NAME being that of the pairs."""
    content = {"name": name, "update": run.update, "prepared_digest": run.prepared.digest, **asdict(scores)}
    return write_analysis(run.folder, f"contrastive-{name}", "contrastive", content)


def _distance(contrast: Contrast) -> str:
    distance = contrast.distance or 0
    return str(distance) if distance <= FARTHEST else f">{FARTHEST}"


def _grouped(names: Sequence[str], right: Bool[np.ndarray, " pairs"]) -> dict[str, Proportion]:
    """The part that is right under each name, in the order in which the names come."""
    groups: dict[str, list[bool]] = {}
    for name, outcome in zip(names, right.tolist(), strict=True):
        groups.setdefault(name, []).append(outcome)
    return {name: proportion(outcomes) for name, outcomes in groups.items()}
