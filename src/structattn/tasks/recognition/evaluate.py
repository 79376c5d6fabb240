"""Scores of recognition: accuracy by kind of string and by length, beside that of trivial rules."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from structattn.metrics.statistics import Proportion, lower_bound, wilson_interval
from structattn.models.mode import evaluating
from structattn.settings.training import LABEL_ONLY, TokenBatches
from structattn.support.errors import DataError, quoted
from structattn.support.progress import progress
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.recognition.batches import recognition_examples, string_of
from structattn.tasks.recognition.examples import MEMBER, UNIFORM
from structattn.tasks.recognition.language import RecognitionLanguage, String
from structattn.tasks.recognition.prepare import language_of
from structattn.tasks.recognition.rules import answers_of_rules, trivial_rules
from structattn.tasks.recognition.task import batch_scores
from structattn.tasks.scores import MemberScores, RecognitionScores, SplitScores
from structattn.tasks.task import perplexity
from structattn.text.folders.header import HEADER_NAME
from structattn.text.folders.prepared import PreparedFolder

MIDDLE: Final = 200
"""The greatest length of a band beyond those of training and of ``valid-long``, as in FLaRe's test set."""
ALL: Final = "all"


def recognition_scores(run: LoadedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run on a split."""
    examples = recognition_examples(run.prepared, split, TokenBatches(max_tokens=batch_tokens), LABEL_ONLY)
    plan, found = examples.scoring_order(), []
    with evaluating(run.model), progress(f"Scoring {split}", len(plan), "batches") as advance:
        for indices in plan:
            found.append(batch_scores(run.accelerated, examples.batch(indices)))
            advance()
    order = np.argsort(np.concatenate(plan))
    losses, right = (torch.cat([each[field] for each in found]).numpy()[order] for field in (0, 1))
    of_members = [each.of_members for each in found if each.of_members is not None]
    loss = float(losses.mean())
    return SplitScores(
        split=split,
        num_sequences=len(right),
        num_tokens=len(right),
        cross_entropy=loss,
        perplexity=perplexity(loss),
        accuracy=float(right.mean()),
        recognition=compare(
            run.prepared, split, right.tolist(), torch.cat(of_members).numpy()[order] if of_members else None
        ),
    )


def compare(
    prepared: PreparedFolder, split: str, right: Sequence[bool], nats: NDArray[np.float64] | None = None
) -> RecognitionScores:
    """Return the accuracy of answers and of trivial rules on the strings of a split.

    Args:
        prepared: the data.
        split: of them.
        right: whether each answer is right.
        nats: -log p(string <eos>) of each member; None: members have no scores of language modeling.
    """
    sequences, edits = prepared.split(split), np.asarray(prepared.edits(split))
    strings = [string_of(sequences, index) for index in range(len(sequences))]
    language, labels = language_of(prepared), (edits == MEMBER).tolist()
    training = _training_members(prepared)
    rules = trivial_rules(language, training)
    answers = answers_of_rules(rules, strings, labels)
    limits = band_limits(prepared)
    bands = [_band(len(string), limits) for string in strings]
    num_lengths = {_band(0, limits): len({len(member) for member in training})}
    groups = {ALL: [True] * len(labels), "members": labels}
    groups |= {"uniform negatives": (edits == UNIFORM).tolist(), "edited negatives": (edits > UNIFORM).tolist()}
    shape = rules.get("shape", rules["neighbours"])
    groups["well-shaped negatives"] = [
        not label and shape(string) for label, string in zip(labels, strings, strict=True)
    ]
    return RecognitionScores(
        groups={name: found for name, chosen in groups.items() if (found := _by_band(right, bands, chosen))},
        rules={name: _by_band(given, bands, groups[ALL]) for name, given in answers.items()},
        members=None if nats is None else _members(language, strings, bands, nats, labels, num_lengths),
    )


def _members(
    language: RecognitionLanguage,
    strings: Sequence[String],
    bands: Sequence[str],
    nats: NDArray[np.float64],
    labels: Sequence[bool],
    num_lengths: Mapping[str, int],
) -> dict[str, MemberScores]:
    """Return the scores of language modeling of the members of each band; ``num_lengths`` of training in its band."""
    chosen = np.flatnonzero(labels)
    own = [strings[index] for index in chosen.tolist()]
    lengths, of_band = np.array([len(string) for string in own]), np.array(bands)[chosen]
    conditionals = language.log_conditionals(own)
    scores = {}
    for band in sorted(set(of_band), key=lambda each: lengths[of_band == each].min()):
        inside = of_band == band
        num_tokens = int((lengths[inside] + 1).sum())
        cross_entropy, bound = float(nats[chosen][inside].sum() / num_tokens), None
        number = None if conditionals is None else num_lengths.get(band, 1)
        if conditionals is not None and number is not None:
            bound = lower_bound(conditionals[inside], lengths[inside], number)
        difference = None if bound is None else cross_entropy - bound
        scores[str(band)] = MemberScores(int(inside.sum()), num_tokens, cross_entropy, bound, difference, number)
    return scores


def _training_members(prepared: PreparedFolder) -> list[String]:
    sequences = prepared.split("train")
    return [string_of(sequences, index) for index in np.flatnonzero(prepared.edits("train") == MEMBER).tolist()]


def band_limits(prepared: PreparedFolder) -> list[int]:
    """Return the greatest length of each band but the last: 40, 80 and 200 for FLaRe's data.

    Raises:
        DataError: the header states no lengths.
    """
    stated = prepared.header.extra.get("max_lengths")
    limits = [stated.get(split) for split in ("train", "valid-long", "test")] if isinstance(stated, dict) else [None]
    if not all(isinstance(limit, int) for limit in limits):
        raise DataError(prepared.path / HEADER_NAME, f"max_lengths is {quoted(stated)}; expected those of the splits")
    *trained, longest = limits
    return sorted(limit for limit in {*trained, max(MIDDLE, *trained)} if limit < longest)


def _band(length: int, limits: Sequence[int]) -> str:
    """Return the band of a length, such as ``41-80``."""
    least = 0
    for greatest in limits:
        if length <= greatest:
            return f"{least}-{greatest}"
        least = greatest + 1
    return f"{least}+"


def _by_band(outcomes: Sequence[bool], bands: Sequence[str], chosen: Iterable[bool]) -> dict[str, Proportion]:
    """Return the proportions of the chosen strings, over all lengths and by band."""
    found: dict[str, list[bool]] = {}
    for outcome, band, wanted in zip(outcomes, bands, chosen, strict=True):
        if wanted:
            found.setdefault(ALL, []).append(outcome)
            found.setdefault(band, []).append(outcome)
    ordered = sorted(found, key=lambda band: -1 if band == ALL else int(band.partition("-")[0].rstrip("+")))
    return {band: wilson_interval(found[band]) for band in ordered}
