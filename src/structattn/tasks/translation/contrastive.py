"""Contrastive pairs: is a translation more likely than the same translation with an error (You et al. 2020, 6.2)?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from structattn.metrics.proportions import Proportion, wilson_interval
from structattn.runs.analyses import write_analysis
from structattn.support.progress import progress
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.translation.contrast import Contrast
from structattn.tasks.translation.translators import make_pair_scorer

BATCH_TOKENS = 4096
MAX_DISTANCE = 15  # words; larger distances are counted together, as by LingEval97's own tool


@dataclass(frozen=True)
class ContrastiveScores:
    """Accuracy: how often the reference was strictly more likely; a tie counts as wrong.

    Args:
        types: type of error -> accuracy, in order of first occurrence.
        distances: type of error -> distance in words (``0`` to ``15``, ``>15``) -> accuracy, for types with distances.
        per_token: whether log-probabilities per token were compared instead of those of the whole translation.
    """

    types: dict[str, Proportion]
    distances: dict[str, dict[str, Proportion]]
    per_token: bool


def contrastive_negative_log_likelihoods(
    run: LoadedRun, contrasts: Sequence[Contrast], *, per_token: bool = False, batch_tokens: int = BATCH_TOKENS
) -> Float[np.ndarray, "pairs 2"]:
    """Return -log p(translation | source) of the reference and of the contrastive translation, ``<eos>`` included.

    Args:
        run: a translation run.
        contrasts: the pairs.
        per_token: divide by the number of tokens, ``<eos>`` included, characters of spelled words excluded.
        batch_tokens: the maximal padded size of a batch.

    Cost: each distinct encoded pair is scored once, so translations with equal token ids tie exactly; memory for
    batch_tokens * classes numbers.

    Raises:
        UsageError: the run is not a translation run.
        DataError: a line cannot be encoded or is too long for the model; the message names the line.
    """
    scorer = replace(make_pair_scorer([run]), batch_tokens=batch_tokens)
    encoded = [
        scorer.encode(each.source, text, (each.path, each.path), each.line)
        for each in contrasts
        for text in (each.reference, each.contrastive)
    ]
    distinct = list(dict.fromkeys(encoded))
    with progress("Scoring translations", len(distinct), "translations") as advance:
        found = scorer(distinct, advance)
    values = [-each.log_probability / (each.num_tokens if per_token else 1) for each in found]
    losses = dict(zip(distinct, values, strict=True))
    return np.array([losses[each] for each in encoded], np.float64).reshape(-1, 2)


def contrastive_scores(
    contrasts: Sequence[Contrast], losses: Float[np.ndarray, "pairs 2"], *, per_token: bool = False
) -> ContrastiveScores:
    """Return how often the reference is more likely, by type of error and by distance.

    Args:
        contrasts: the pairs.
        losses: -log p of their two translations.
        per_token: whether ``losses`` are per token; stored with the scores.
    """
    right = losses[:, 0] < losses[:, 1]
    types = _grouped([each.kind for each in contrasts], right)
    distances = {}
    for kind in types:
        known = [n for n, each in enumerate(contrasts) if each.kind == kind and each.distance is not None]
        known.sort(key=lambda n: contrasts[n].distance or 0)
        if known:
            distances[kind] = _grouped([_distance(contrasts[n]) for n in known], right[known])
    return ContrastiveScores(types, distances, per_token)


def write_contrastive(run: LoadedRun, name: str, scores: ContrastiveScores) -> Path:
    """Write the scores to ``analyses/contrastive-NAME.json`` in the run folder; NAME is the name of the suite."""
    content = {"name": name, "update": run.update, "prepared_digest": run.prepared.digest, **asdict(scores)}
    return write_analysis(run.run_dir, f"contrastive-{name}", "contrastive", content)


def _distance(contrast: Contrast) -> str:
    distance = contrast.distance or 0
    return str(distance) if distance <= MAX_DISTANCE else f">{MAX_DISTANCE}"


def _grouped(names: Sequence[str], right: Bool[np.ndarray, " pairs"]) -> dict[str, Proportion]:
    """Return the accuracy for each name, in order of first occurrence."""
    groups: dict[str, list[bool]] = {}
    for name, outcome in zip(names, right.tolist(), strict=True):
        groups.setdefault(name, []).append(outcome)
    return {name: wilson_interval(outcomes) for name, outcomes in groups.items()}
