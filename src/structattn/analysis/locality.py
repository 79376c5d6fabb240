"""How far from themselves positions look (You et al. 2020, sections 2.2 and 6.2): by head, and by sentence."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from structattn.analysis.pairs import BATCH_TOKENS, explained_pairs
from structattn.attention import Explanation
from structattn.data.batching.pairs import PairBatch
from structattn.evaluation.run_files import write_analysis
from structattn.inference.records import ACTION_NAMES
from structattn.inference.runs import TrainedRun
from structattn.models.encoder_decoder import EncoderDecoderExplanation

Place = Literal["encoder", "decoder", "cross"]
WITHIN: tuple[Place, ...] = ("encoder", "decoder")  # attention within a sequence, which has a diagonal
OFF_DIAGONAL = 2  # steps from a position, at least
_DIGITS = 6


@dataclass(frozen=True)
class HeadLocality:
    """Where a head looks: the mean over all positions i of argmax_j w_ij - i, with and without its sign.

    Args:
        place: ``encoder`` and ``decoder``, within the sequence; ``cross``, from the target to the source.
        layer: its number, from 0.
        head: its number, from 0; where a layer mixes them, hard-coded heads stand before learned ones.
        mechanism: of the layer.
        positions: how many were counted; one whose weights are all 0 looks nowhere.
        mean: in positions; below 0 to the left.
        absolute: the mean of the distances.
    """

    place: Place
    layer: int
    head: int
    mechanism: str
    positions: int
    mean: float
    absolute: float


@dataclass(frozen=True)
class Locality:
    """The locality of all heads of an encoder-decoder on a split, every target given.

    Args:
        heads: of all layers that have any; stacks have none.
        off_diagonality: for the encoder and the decoder, of each pair in file order, the part of its positions whose
            argmax is at least 2 steps away, a mean over all heads of all layers; empty where there are no heads.
    """

    heads: tuple[HeadLocality, ...]
    off_diagonality: dict[Place, Float[np.ndarray, " pairs"]]


def looked_at(
    weights: Float[Tensor, "batch heads time source"], lengths: Int[Tensor, " batch"]
) -> tuple[Int[Tensor, "batch heads time"], Bool[Tensor, "batch heads time"]]:
    """argmax_j w_ij - i of every position i, the first of equal ones; and which positions count.

    Those from a length on do not count, nor those whose weights are all 0.
    """
    time = torch.arange(weights.shape[2], device=weights.device)
    offsets = weights.argmax(-1) - time
    return offsets, (weights.amax(-1) > 0) & (time < lengths[:, None, None])


def locality(run: TrainedRun, split: str, batch_tokens: int = BATCH_TOKENS) -> Locality:
    """Where the heads of a translation run look in the pairs of a split, under teacher forcing.

    Raises:
        DataError: the data are no parallel text, or the split is empty.
    """
    totals: dict[tuple[Place, int, str], Tensor] = {}
    fractions: dict[Place, list[tuple[tuple[int, ...], Tensor]]] = {}
    for batch, found in explained_pairs(run, split, batch_tokens):
        of_pairs: dict[Place, list[Tensor]] = {}
        for place, explanation in _with_heads(found):
            offsets, counted = looked_at(explanation.weights, _lengths(batch, place).to(explanation.weights.device))
            key = (place, explanation.layer, explanation.mechanism)
            totals[key] = totals.get(key, 0) + _sums(offsets, counted)
            if place in WITHIN:
                of_pairs.setdefault(place, []).append(_off_diagonal(offsets, counted))
        for place, parts in of_pairs.items():
            fractions.setdefault(place, []).append((batch.examples, torch.cat(parts, 1).nanmean(1).nan_to_num()))
    heads = [head for key, sums in totals.items() for head in _heads(*key, sums)]
    return Locality(tuple(heads), {place: _in_file_order(some) for place, some in fractions.items()})


def write_locality(run: TrainedRun, split: str) -> Path:
    """Find out the locality of a translation run, and keep it as ``analyses/SPLIT-attention.json`` in its folder."""
    found = locality(run, split)
    content = {
        "split": split,
        "update": run.update,
        "prepared_digest": run.prepared.digest,
        "heads": [asdict(head) for head in found.heads],
        "off_diagonality": {
            place: np.round(values, _DIGITS).tolist() for place, values in found.off_diagonality.items()
        },
    }
    return write_analysis(run.run_dir, f"{split}-attention", "attention", content)


def _with_heads(found: EncoderDecoderExplanation) -> Iterator[tuple[Place, Explanation]]:
    for explanation in found.encoder:
        if explanation.mechanism not in ACTION_NAMES:
            yield "encoder", explanation
    for explanation in found.decoder:
        if explanation.mechanism not in ACTION_NAMES:
            yield ("cross" if explanation.sublayer == "cross" else "decoder"), explanation


def _lengths(batch: PairBatch, place: Place) -> Tensor:
    return batch.source_lengths if place == "encoder" else batch.lengths


def _sums(offsets: Tensor, counted: Tensor) -> Tensor:
    """(3, H): positions, sum of offsets, sum of distances."""
    offsets = offsets.double() * counted
    return torch.stack([counted.double(), offsets, offsets.abs()]).sum((1, 3)).cpu()


def _off_diagonal(offsets: Tensor, counted: Tensor) -> Tensor:
    """(B, H): the part of a pair's positions that look away; NaN where a head looks nowhere."""
    away = (offsets.abs() >= OFF_DIAGONAL) & counted
    return (away.sum(-1).double() / counted.sum(-1)).cpu()


def _heads(place: Place, layer: int, mechanism: str, sums: Tensor) -> list[HeadLocality]:
    found = []
    for head, (positions, offsets, distances) in enumerate(sums.T.tolist()):
        many = max(positions, 1.0)
        found.append(HeadLocality(place, layer, head, mechanism, int(positions), offsets / many, distances / many))
    return found


def _in_file_order(parts: list[tuple[tuple[int, ...], Tensor]]) -> Float[np.ndarray, " pairs"]:
    examples = np.concatenate([np.array(numbers) for numbers, _ in parts])
    values = np.concatenate([values.numpy() for _, values in parts])
    return np.asarray(values[np.argsort(examples)])
