"""Records of the layers of a trained run on texts and examples."""

from collections.abc import Sequence
from typing import Any

from structattn.loading.records import Record, records_of
from structattn.support.errors import UsageError
from structattn.tasks.loaded import Explainer, LoadedRun, require_no_string, require_texts
from structattn.tasks.registry import kind_of


def explain_texts(run: LoadedRun, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[list[Record]]:
    """Return the records of all layers and heads for each text, one text at a time; see ``TrainedRun.explain``."""
    for what, given in (("texts", texts), ("targets", targets)):
        require_no_string(given)
        require_texts(given or (), what)
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
    """Return the records of all layers and heads for a batch of size 1, with the contents of some depths of stacks."""
    return [
        record
        for each in explainer.layers(batch)
        for record in records_of(each.explanation, each.tokens, each.memory, each.side, depths)
    ]
