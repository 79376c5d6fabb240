"""Recordings as archives of NumPy arrays, for notebooks, and for tools that draw attention: BertViz, CircuitsVis."""

from collections.abc import Mapping
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from structattn.explorer.recording import RECEPTIVE_FIELD, RecordedExample, Recording
from structattn.loading.records import Record
from structattn.support.files import write_atomically
from structattn.support.grouping import grouped
from structattn.support.shapes import Float32


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays without objects to a compressed archive of NumPy, atomically; equal arrays give equal bytes."""
    content = BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomically(path, content.getvalue())


def write_archive(path: str | PathLike[str], recording: Recording) -> None:
    """Write the attention of a recording to a file ``.npz``, atomically; example 0 is in arrays ``0/NAME``, and so on.

    ``numpy.load`` reads it without pickle. See ``example_arrays``; ``write_recording`` keeps all that was recorded.

    Raises:
        OSError: it cannot be written.
    """
    examples = enumerate(recording.examples)
    arrays = {f"{number}/{name}": array for number, each in examples for name, array in example_arrays(each).items()}
    write_arrays(Path(path), arrays)


def example_arrays(example: RecordedExample) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an example, with T tokens and S source tokens.

    - ``tokens`` (T,), ``source`` (S,) of a translation, ``surprisal`` (T,): −log p of the next token in nats, or NaN.
    - ``attention`` (layers, heads, T, T): the weights of self-attention and stack attention. Of a translation,
      ``encoder_attention`` (layers, heads, S, S), ``decoder_attention`` and ``cross_attention`` (layers, heads, T, S).
    - ``stack``, likewise: those of stacks that are added to layers.

    The first index is the layer of the model, up to the last with weights; each stack of a layer is a head. Heads and
    layers without weights are zeros. The weight of the bottom of a stack, or of a null cell, is left out, so that rows
    may sum to less than 1.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "tokens": np.array(example.tokens),
        "surprisal": example.surprisal.astype(np.float32),
    }
    if example.source is not None:
        arrays["source"] = np.array(example.source)
    records = [record for record in example.records if record.mechanism != RECEPTIVE_FIELD]
    sides = grouped(records, lambda record: record.side)
    layers = {side: 1 + max(record.layer for record in of_side) for side, of_side in sides.items()}
    groups = grouped(records, _name)
    return arrays | {name: _stacked(of_name, layers[of_name[0].side]) for name, of_name in groups.items()}


def _name(record: Record) -> str:
    if record.sublayer == "cross":
        return "cross_attention"
    return record.sublayer if record.side is None else f"{record.side}_{record.sublayer}"


def _stacked(records: list[Record], layers: int) -> Float32[np.ndarray, "layers heads time source"]:
    weights = [_without_bottom(record) for record in records]
    places = [(record.layer, record.head or 0) for record in records]
    heads = 1 + max(head for _, head in places)
    stacked = np.zeros((layers, heads, *weights[0].shape), np.float32)
    for place, each in zip(places, weights, strict=True):
        stacked[place] = each
    return stacked


def _without_bottom(record: Record) -> np.ndarray[Any, Any]:
    time, sources = record.weights.shape
    return record.weights if record.sublayer == "cross" else record.weights[:, sources - time :]
