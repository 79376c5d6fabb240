"""Explanation records: the weights of one layer or head for one example, as JSON that reports show without a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.explanation import Explanation
from structattn.settings.mechanisms import MECHANISMS
from structattn.support.json_files import write_json

FORMAT_VERSION = 1
BOTTOM = "(bottom)"
ACTION_NAMES = {name: entry.actions for name, entry in MECHANISMS.items() if entry.actions}
_DECIMALS = 6  # of a weight

Side = Literal["encoder", "decoder"]


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
        actions: (T, 3) probabilities of a stack's actions at each position, or their posterior given the whole example.
        best_run: (T, 3) action, state and symbol of the most probable run of a nondeterministic stack.
        truth: (T, S) of a receptive field: the inputs that each prediction truly depends on, where known.
        side: of an encoder-decoder, the side that the layer belongs to.
        contents: of a stack, where they were asked for.
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
    truth: Float[np.ndarray, "time source"] | None = None
    side: Side | None = None
    contents: Contents | None = None

    def to_json(self, split: str, example: int) -> dict[str, Any]:
        """Return the record as an object that JSON can hold, together with the split and the index of the example."""
        content = {
            "format_version": FORMAT_VERSION,
            "split": split,
            "example": example,
            "tokens": self.tokens,
            "side": self.side,
            "layer": self.layer,
            "sublayer": self.sublayer,
            "head": self.head,
            "mechanism": self.mechanism,
            "weights": _rounded(self.weights),
            "sources": self.sources,
            "actions": None if self.actions is None else _rounded(self.actions),
            "action_names": ACTION_NAMES.get(self.mechanism),
            "best_run": None if self.best_run is None else self.best_run.tolist(),
            "truth": None if self.truth is None else _rounded(self.truth),
        }
        return {key: value for key, value in content.items() if value is not None}


def _rounded(values: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> object:
    return np.round(values.astype(np.float64), _DECIMALS).tolist()


def _array(tensor: Tensor | None, time: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None:
    return None if tensor is None else tensor[0, :time].detach().cpu().numpy()


def _contents(explanation: Explanation, depths: int, time: int, sources: int) -> Contents | None:
    if depths == 0 or explanation.contents is None:
        return None
    found = explanation.contents(depths)
    parts = found.height, found.at_least, found.positions[..., :sources], found.symbols
    height, at_least, positions, symbols = (_array(part, time) for part in parts)
    assert height is not None
    assert at_least is not None
    assert positions is not None
    return Contents(height, at_least, positions, symbols)


def records_of(
    explanation: Explanation,
    tokens: Sequence[str],
    memory: Sequence[str] | None = None,
    side: Side | None = None,
    depths: int = 0,
) -> list[Record]:
    """Return a record for every head of one layer's explanation of one example (batch size 1).

    Args:
        explanation: of the layer.
        tokens: the symbols of the queries' positions.
        memory: the symbols of the memory, for cross-attention; None: the same as ``tokens``.
        side: of an encoder-decoder, the side that the layer belongs to.
        depths: the number of depths of stacks whose contents are computed.
    """
    time = len(tokens)
    sources = (BOTTOM,) * explanation.first_source + tuple(tokens if memory is None else memory)
    weights = explanation.weights[0, :, :time, : len(sources)].detach().cpu().numpy()
    return [
        Record(
            tokens=tuple(tokens),
            layer=explanation.layer,
            sublayer=explanation.sublayer,
            head=head if len(weights) > 1 else None,
            mechanism=explanation.mechanism,
            weights=head_weights,
            sources=sources,
            actions=_array(explanation.details.get("actions"), time),
            best_run=_array(explanation.details.get("best_run"), time),
            side=side,
            contents=_contents(explanation, depths, time, len(sources)),
        )
        for head, head_weights in enumerate(weights)
    ]


def write_record(folder: Path, record: Record, split: str, example: int) -> Path:
    """Write a record into a folder and return its path.

    The file is named ``SPLIT-EXAMPLE[-SIDE]-layer-L[-SUBLAYER][-head-H].json``, where L and H count from 1, and
    self-attention has no SUBLAYER.
    """
    side = "" if record.side is None else f"-{record.side}"
    sublayer = "" if record.sublayer == "attention" else f"-{record.sublayer}"
    head = "" if record.head is None else f"-head-{record.head + 1}"
    path = folder / f"{split}-{example}{side}-layer-{record.layer + 1}{sublayer}{head}.json"
    write_json(path, "record", record.to_json(split, example), indent=None)
    return path
