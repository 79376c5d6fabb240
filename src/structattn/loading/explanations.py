"""Explanations of texts: the attention weights of all layers of a trained model, as records."""

from collections.abc import Sequence
from typing import Any

from structattn.loading.records import Record, records_of
from structattn.support.errors import UsageError
from structattn.tasks.loaded import Explainer, LoadedRun
from structattn.tasks.registry import kind_of
from structattn.tasks.streams import require_no_string


def explain_texts(run: LoadedRun, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[list[Record]]:
    """Return the records of all layers and heads for each text, one text at a time.

    Args:
        run: with its model in evaluation mode.
        texts: lines of text; strings of a formal language; inputs of a transduction, symbols separated by spaces;
            source lines, for translation. A text for a model of a stream may have several lines.
        targets: answers or translations, one for each text; None: greedy search finds them. For tasks with answers
            only. A masked transduction predicts its answers, so it does not need them.

    Raises:
        DataError: a text or target cannot be encoded, or is too long for the model.
        UsageError: there is not one target for each text, or the task has no targets.
    """
    for given in (texts, targets):
        require_no_string(given)
    explainer = kind_of(run).explainer(run)
    answers = targets_of(explainer, run, texts, targets)
    batches = (explainer.text(*pair, number) for number, pair in enumerate(zip(texts, answers, strict=True), start=1))
    return [layer_records(explainer, batch) for batch in batches]


def targets_of(
    explainer: Explainer, run: LoadedRun, texts: Sequence[str], targets: Sequence[str] | None
) -> Sequence[str | None]:
    """Return the target of each text, None where none is given.

    Raises:
        UsageError: there is not one target for each text, or the task has no targets.
    """
    if targets is None:
        return [None] * len(texts)
    if len(targets) != len(texts):
        raise UsageError(f"{len(targets)} targets for {len(texts)} texts; expected one for each")
    if not explainer.has_targets:
        raise UsageError(f"the task {run.settings.task!r} has no targets")
    return targets


def layer_records(explainer: Explainer, batch: Any, depths: int = 0) -> list[Record]:
    """Return the records of all layers and heads for a batch of size 1.

    Args:
        explainer: of the run.
        batch: one that the explainer made.
        depths: the number of depths of stacks whose contents are computed.
    """
    return [
        record
        for each in explainer.layers(batch)
        for record in records_of(each.explanation, each.tokens, each.memory, each.side, depths)
    ]
