"""Records: what one layer did with one example, as JSON that a report or a page can show without a model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.explanation import Explanation
from structattn.support.files import write_atomically

FORMAT_VERSION = 1
BOTTOM = "(bottom)"
ACTION_NAMES = {
    "superposition": ("push", "no-op", "pop"),
    "nondeterministic": ("push", "replace", "pop"),
    "stack_pointer": ("push", "no-op", "pop"),
    "stratified": ("push", "pop"),
}
_DIGITS = 6  # of a weight, after the point

Side = Literal["encoder", "decoder"]


@dataclass(frozen=True)
class Record:
    """What a layer, or one head of it, did with an example.

    Args:
        tokens: T symbols, those that were read.
        layer: its number, from 0.
        sublayer: ``attention``; ``cross`` to what an encoder read; ``stack`` where a stack was added after the
            feed-forward sublayer; ``receptive-field`` for all layers from the first to this one.
        head: the head's number, from 0, where there is more than one.
        mechanism: ``softmax``, ``superposition``, ``nondeterministic``, ``stack_pointer``, and the like; or
            ``receptive_field``.
        weights: (T, S), how much each source contributes to the reading at each position.
        sources: S symbols; a stack's first is its bottom.
        actions: (T, 3) probabilities, of a stack: at each position, or their posterior given the whole example.
        best_run: (T, 3) action, state, symbol of the most probable run, of a nondeterministic stack.
        truth: (T, S) of a receptive field, which inputs each prediction depends on in truth, where that is known.
        side: of an encoder-decoder, whose layer it is.
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

    def to_json(self, split: str, example: int) -> str:
        """The record as one JSON object, with what it is a record of."""
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
        given = {key: value for key, value in content.items() if value is not None}
        return json.dumps(given, ensure_ascii=False, allow_nan=False) + "\n"


def _rounded(values: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> object:
    return np.round(values.astype(np.float64), _DIGITS).tolist()


def _array(tensor: Tensor | None, time: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None:
    return None if tensor is None else tensor[0, :time].detach().cpu().numpy()


def records_of(
    explanation: Explanation, tokens: Sequence[str], memory: Sequence[str] | None = None, side: Side | None = None
) -> list[Record]:
    """A record for every head of one layer's explanation of one example, batch size 1.

    Args:
        explanation: the layer's.
        tokens: the symbols of the positions that read.
        memory: those that are read from, of cross-attention; None: the same.
        side: of an encoder-decoder, whose layer it is.
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
            weights=of_head,
            sources=sources,
            actions=_array(explanation.details.get("actions"), time),
            best_run=_array(explanation.details.get("best_run"), time),
            side=side,
        )
        for head, of_head in enumerate(weights)
    ]


def write_record(folder: Path, record: Record, split: str, example: int) -> Path:
    """Write a record into a folder and give its path; L and H count from 1.

    It is named ``SPLIT-EXAMPLE[-SIDE]-layer-L[-SUBLAYER][-head-H].json``, without the sublayer where it is attention
    within the sequence.
    """
    side = "" if record.side is None else f"-{record.side}"
    sublayer = "" if record.sublayer == "attention" else f"-{record.sublayer}"
    head = "" if record.head is None else f"-head-{record.head + 1}"
    path = folder / f"{split}-{example}{side}-layer-{record.layer + 1}{sublayer}{head}.json"
    write_atomically(path, record.to_json(split, example))
    return path
