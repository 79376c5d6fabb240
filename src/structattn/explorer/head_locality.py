"""Attention distances of an encoder-decoder's heads on pairs of a split, under teacher forcing."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from structattn.attention import Explanation
from structattn.loading.records import action_names
from structattn.loading.trained_run import TrainedRun
from structattn.models.encoder_decoder import EncoderDecoderExplanation
from structattn.runs.store import write_analysis
from structattn.support.progress import progress
from structattn.support.shapes import Bool, Float, Int
from structattn.tasks.translation.batches import scoring_pairs
from structattn.tasks.translation.explain import explain_pairs
from structattn.tasks.translation.predictions import translation_model
from structattn.text.batching.pairs import PairBatch

BATCH_TOKENS = 2048  # a map has this many numbers per head, times the length


def explain_all_pairs(
    run: TrainedRun, split: str, batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[PairBatch, EncoderDecoderExplanation]]:
    """Yield the attention weights of every layer for all pairs of a split, batch by batch, under teacher forcing.

    Weights are (B, H, S, S) in the encoder, (B, H, T, T) in the decoder, and (B, H, T, S) in cross-attention, where
    S is the source length with ``<eos>`` and T the target length with ``<bos>``; they are zero at padding. Neither side
    of a batch has more than ``batch_tokens``, padding included. Cost: two forward passes.

    Raises:
        DataError: the data are not parallel text, or the split is empty.
    """
    examples = scoring_pairs(run.prepared, split, batch_tokens, "both")
    with progress(f"Explaining {split}", len(examples.pairs), "pairs") as advance:
        for numbers in examples.scoring_order():
            batch = examples.batch(numbers)
            yield batch, explain_pairs(translation_model(run), batch)
            advance(len(numbers))


Kind = Literal["encoder", "decoder", "cross"]
WITHIN: tuple[Kind, ...] = ("encoder", "decoder")  # self-attention, which has a diagonal
OFF_DIAGONAL = 2  # minimal distance that counts as off-diagonal
_DIGITS = 6


@dataclass(frozen=True)
class HeadLocality:
    """Locality of a head: the mean over all positions i of the offset argmax_j w_ij - i.

    Args:
        kind: ``encoder`` and ``decoder`` for self-attention; ``cross`` for cross-attention.
        layer: the index of the layer, from 0.
        head: the index of the head, from 0; if a layer has both, hard-coded heads come before learned ones.
        positions: the number of positions; those whose weights are all 0 do not count.
        mean: the mean offset, in positions; negative to the left.
        absolute: the mean distance, that of |argmax_j w_ij - i|, in positions.
    """

    kind: Kind
    layer: int
    head: int
    mechanism: str
    positions: int
    mean: float
    absolute: float


@dataclass(frozen=True)
class Locality:
    """The locality of all heads of an encoder-decoder on a split, under teacher forcing.

    Args:
        heads: the heads of all layers with attention weights; stacks have none.
        off_diagonality: for encoder and decoder, and each pair in file order, the fraction of positions whose argmax is
            at least 2 positions away, averaged over all heads of all layers; empty if there are no heads.
    """

    heads: tuple[HeadLocality, ...]
    off_diagonality: dict[Kind, Float[np.ndarray, " pairs"]]


def argmax_offsets(
    weights: Float[Tensor, "batch heads time source"], lengths: Int[Tensor, " batch"]
) -> tuple[Int[Tensor, "batch heads time"], Bool[Tensor, "batch heads time"]]:
    """Return argmax_j w_ij - i of every position i (the first maximum), and a mask of the positions that count.

    Padding and positions whose weights are all 0 do not count.
    """
    time = torch.arange(weights.shape[2], device=weights.device)
    offsets = weights.argmax(-1) - time
    return offsets, (weights.amax(-1) > 0) & (time < lengths[:, None, None])


def locality(run: TrainedRun, split: str, batch_tokens: int = BATCH_TOKENS) -> Locality:
    """Return the locality of the heads of a translation run on a split, under teacher forcing.

    Raises:
        DataError: the data are not parallel text, or the split is empty.
    """
    totals: dict[tuple[Kind, int, str], Tensor] = {}
    fractions: dict[Kind, list[tuple[tuple[int, ...], Tensor]]] = {}
    for batch, layers in explain_all_pairs(run, split, batch_tokens):
        of_pairs: dict[Kind, list[Tensor]] = {}
        for kind, explanation in _attention_layers(layers):
            lengths = batch.source_lengths if kind == "encoder" else batch.lengths
            offsets, counted = argmax_offsets(explanation.weights, lengths.to(explanation.weights.device))
            key = (kind, explanation.layer, explanation.mechanism)
            totals[key] = totals.get(key, 0) + _sums(offsets, counted)
            if kind in WITHIN:
                of_pairs.setdefault(kind, []).append(_off_diagonal(offsets, counted))
        for kind, parts in of_pairs.items():
            fractions.setdefault(kind, []).append((batch.examples, torch.cat(parts, 1).nanmean(1).nan_to_num()))
    heads = [
        HeadLocality(
            kind, layer, head, mechanism, int(positions), offsets / (positions or 1), distances / (positions or 1)
        )
        for (kind, layer, mechanism), sums in totals.items()
        for head, (positions, offsets, distances) in enumerate(sums.T.tolist())
    ]
    return Locality(tuple(heads), {kind: _in_file_order(some) for kind, some in fractions.items()})


def write_locality(run: TrainedRun, split: str) -> Path:
    """Compute the locality of a translation run and write it to ``analyses/SPLIT-attention.json`` in its folder."""
    measured = locality(run, split)
    content = {
        "split": split,
        "update": run.update,
        "prepared_digest": run.prepared.digest,
        "heads": [asdict(head) for head in measured.heads],
        "off_diagonality": {
            kind: np.round(values, _DIGITS).tolist() for kind, values in measured.off_diagonality.items()
        },
    }
    return write_analysis(run.run_dir, f"{split}-attention", "attention", content)


def _attention_layers(model: EncoderDecoderExplanation) -> Iterator[tuple[Kind, Explanation]]:
    sides: tuple[tuple[Kind, Sequence[Explanation]], ...] = (("encoder", model.encoder), ("decoder", model.decoder))
    for side, layers in sides:
        for explanation in layers:
            if not action_names(explanation.mechanism):
                yield ("cross" if explanation.sublayer == "cross" else side), explanation


def _sums(offsets: Tensor, counted: Tensor) -> Tensor:
    """Return (3, H): number of positions, sum of offsets, sum of absolute offsets."""
    offsets = offsets.double() * counted
    return torch.stack([counted.double(), offsets, offsets.abs()]).sum((1, 3)).cpu()


def _off_diagonal(offsets: Tensor, counted: Tensor) -> Tensor:
    """Return (B, H): the fraction of off-diagonal positions of each pair; NaN if a head has no counted position."""
    distant = (offsets.abs() >= OFF_DIAGONAL) & counted
    return (distant.sum(-1).double() / counted.sum(-1)).cpu()


def _in_file_order(parts: list[tuple[tuple[int, ...], Tensor]]) -> Float[np.ndarray, " pairs"]:
    examples = np.concatenate([np.array(numbers) for numbers, _ in parts])
    values = np.concatenate([values.numpy() for _, values in parts])
    return np.asarray(values[np.argsort(examples)])
