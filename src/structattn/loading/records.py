"""Explanation records: what one layer or head does on one example, and those of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structattn.attention.protocols import Explanation
from structattn.operators.common.stack_contents import StackContents
from structattn.settings.mechanisms import MECHANISMS
from structattn.support.errors import UsageError
from structattn.support.shapes import Float, Int
from structattn.tasks.loaded import Explainer, LoadedRun, Side, require_no_string, require_texts
from structattn.tasks.registry import kind_of

BOTTOM = "(bottom)"


def action_names(mechanism: str) -> tuple[str, ...]:
    """Return the names of the actions of a mechanism; none for what has no actions, or is no mechanism."""
    return MECHANISMS[mechanism].actions if mechanism in MECHANISMS else ()


@dataclass(frozen=True)
class Contents:
    """What lies at each depth of a stack after each position, T of them; D depths, the first is the top.

    Zeros where there is no stack yet. See ``StackContents``.

    Args:
        height: the expected number of items; of a nondeterministic stack, with the bottom.
        at_least: the probability that there is an item at the depth; at each depth, positions and symbols sum to it.
        positions: the probability that the vector of each of the S sources of the record lies there.
        symbols: the probability of each stack symbol; None for stacks without symbols.
    """

    height: Float[np.ndarray, " time"]
    at_least: Float[np.ndarray, "time depth"]
    positions: Float[np.ndarray, "time depth source"]
    symbols: Float[np.ndarray, "time depth symbol"] | None = None


@dataclass(frozen=True)
class Record:
    """Explanation of one example by a layer or by one of its heads.

    Args:
        tokens: the T input symbols.
        layer: index of the layer, from 0.
        sublayer: ``attention``; ``cross`` for cross-attention; ``stack`` for a stack added after the feed-forward
            sublayer; ``receptive-field`` for all layers up to this one; ``source-receptive-field`` for the source
            inputs on which a decoder's positions depend.
        head: index of the head, from 0; None for a single head.
        mechanism: ``softmax``, ``superposition``, ``nondeterministic``, ``stack_pointer``, and so on; or
            ``receptive_field``.
        weights: (T, S), contribution of each source to the output at each position.
        sources: S symbols; for a stack, the first is the bottom.
        actions: (T, 3) probabilities of a stack's actions at each position, of the layer's input there; of a
            nondeterministic stack their posteriors given the whole example, later positions included, so that
            ``prefix_actions`` is what compares with the actions of other stacks. ``action_names`` names the columns.
        best_run: (T, 3) action, state and symbol of the most probable run of a nondeterministic stack, given the whole
            example.
        prefix_actions: (T, 3) posteriors of a nondeterministic stack's actions given the example up to the position:
            what the reading depends on.
        prefix_tops: (T, 2) the most probable state and symbol on top, given the same.
        truth: (T, S) of a receptive field: the inputs that each prediction truly depends on, where known.
        side: of an encoder-decoder, the side that the layer belongs to.
        contents: of a stack, where they were asked for.
        details: what else the mechanism has in ``Explanation.details``, by name: ``probabilities`` (T, S) of hard
            attention, or what a plugin gives. Details of each head and source are those of the head, others (T, ...).
    """

    tokens: tuple[str, ...]
    layer: int
    sublayer: str
    head: int | None
    mechanism: str
    weights: Float[np.ndarray, "time source"]
    sources: tuple[str, ...]
    actions: Float[np.ndarray, "time action"] | None = None
    best_run: Int[np.ndarray, "time 3"] | None = None
    prefix_actions: Float[np.ndarray, "time action"] | None = None
    prefix_tops: Int[np.ndarray, "time 2"] | None = None
    truth: Float[np.ndarray, "time source"] | None = None
    side: Side | None = None
    contents: Contents | None = None
    details: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the columns of ``actions`` and ``prefix_actions``; none for mechanisms without actions."""
        return action_names(self.mechanism)

    def __repr__(self) -> str:
        named = {name: getattr(self, name) for name in _NAMED_ARRAYS} | dict(self.details)
        shapes = ", ".join(f"{name} {array.shape}" for name, array in named.items() if array is not None)
        head = "" if self.head is None else f", head {self.head}"
        side = "" if self.side is None else f" of the {self.side}"
        return f"Record({self.mechanism!r}, {self.sublayer} of layer {self.layer}{side}{head}: {shapes})"


_NAMED_ARRAYS = ("weights", "actions", "best_run", "prefix_actions", "prefix_tops", "truth")
_FIELDS_OF_DETAILS = frozenset(("actions", "best_run", "prefix_actions", "prefix_tops"))


def _array(tensor: Tensor | None, time: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None:
    return None if tensor is None else _numpy(tensor[0, :time])


def _numpy(tensor: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Return an array, in float32 for bfloat16, which NumPy does not have."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _contents(computed: StackContents | None, time: int, sources: int) -> Contents | None:
    if computed is None:
        return None
    parts = computed.height, computed.at_least, computed.positions[..., :sources]
    height, at_least, positions = (_numpy(part[0, :time]) for part in parts)
    return Contents(height, at_least, positions, _array(computed.symbols, time))


def _stacks(explanation: Explanation, depths: int, count: int) -> list[tuple[Tensor | None, StackContents | None]]:
    """Return the actions and the contents for each head: those of each of several stacks, or of the only one."""
    actions = explanation.details.get("actions")
    contents = explanation.contents(depths) if depths and explanation.contents else None
    if actions is None or actions.dim() == 3:
        return [(actions, contents)] * count
    return [(actions[:, :, head], contents and contents.of_stack(head)) for head in range(count)]


def _details(explanation: Explanation, head: int, time: int, sources: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return the details that are no fields of a record, (B, T, ...); of (B, T, H, S), like the weights, the head's."""
    batch, heads, padded_time, columns = explanation.weights.shape
    rest = {name: each for name, each in explanation.details.items() if name not in _FIELDS_OF_DETAILS}
    return {
        name: _numpy(each[0, :time, head, :sources] if each.shape[2:] == (heads, columns) else each[0, :time])
        for name, each in rest.items()
        if each.shape[:2] == (batch, padded_time)
    }


def records_of(
    explanation: Explanation,
    tokens: Sequence[str],
    memory: Sequence[str] | None = None,
    side: Side | None = None,
    depths: int = 0,
) -> list[Record]:
    """Return a record for every head of one layer's explanation of one example (batch size 1); see ``ExplainedLayer``.

    The contents of that many ``depths`` of stacks are computed.
    """
    time = len(tokens)
    sources = (BOTTOM,) * explanation.first_source + tuple(tokens if memory is None else memory)
    weights = _numpy(explanation.weights[0, :, :time, : len(sources)])
    stacks = _stacks(explanation, depths, len(weights))
    return [
        Record(
            tokens=tuple(tokens),
            layer=explanation.layer,
            sublayer=explanation.sublayer,
            head=head if len(weights) > 1 else None,
            mechanism=explanation.mechanism,
            weights=head_weights,
            sources=sources,
            actions=_array(actions, time),
            best_run=_array(explanation.details.get("best_run"), time),
            prefix_actions=_array(explanation.details.get("prefix_actions"), time),
            prefix_tops=_array(explanation.details.get("prefix_tops"), time),
            side=side,
            contents=_contents(contents, time, len(sources)),
            details=_details(explanation, head, time, len(sources)),
        )
        for head, (head_weights, (actions, contents)) in enumerate(zip(weights, stacks, strict=True))
    ]


def explain_texts(run: LoadedRun, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[list[Record]]:
    """Return the records of all layers and heads for each text, one text at a time; see ``TrainedRun.explain``."""
    for given in (texts, targets):
        require_no_string(given)
    texts, targets = list(texts), None if targets is None else list(targets)
    require_texts(texts, "texts")
    require_texts(targets or (), "targets")
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
