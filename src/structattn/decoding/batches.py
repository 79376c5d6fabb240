"""Batches of items of similar length, and the maximum lengths and forced prefixes of decoded texts."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor

from structattn.decoding.stepper import pad_sequences
from structattn.support.shapes import Int
from structattn.support.special_tokens import EOS

Item = TypeVar("Item")
Result = TypeVar("Result")


def batches_by_length(lengths: Sequence[int], max_tokens: int, max_items: int | None = None) -> list[list[int]]:
    """Return the indices of items in batches of padded size, items * longest length, at most ``max_tokens``.

    A batch has at most ``max_items`` items; None: any number.

    Longest items come first, so that the batch that needs most memory is the first one; equally long items keep their
    order. An item longer than ``max_tokens`` forms a batch alone. An item of length 0 counts as 1.

    Raises:
        ValueError: ``max_tokens`` or ``max_items`` is less than 1.
    """
    for name, value in (("max_tokens", max_tokens), ("max_items", max_items)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}; expected at least 1")
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        size = len(batches[-1]) + 1 if batches else 0
        if (
            batches
            and size * max(1, lengths[batches[-1][0]]) <= max_tokens
            and (max_items is None or size <= max_items)
        ):
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def batches_of_one_length(lengths: Sequence[int], max_items: int) -> list[list[int]]:
    """Return the indices of items in batches of one length, the shortest first; items of one length stay in order."""
    batches = []
    for _, group in groupby(sorted(range(len(lengths)), key=lengths.__getitem__), lengths.__getitem__):
        same = list(group)
        batches += [same[start : start + max_items] for start in range(0, len(same), max_items)]
    return batches


def map_in_batches(
    items: Sequence[Item],
    lengths: Sequence[int],
    max_tokens: int,
    function: Callable[[list[Item]], Sequence[Result]],
    max_items: int | None = None,
) -> list[Result]:
    """Apply a function to items in batches of similar length; return one result for each item, in their order.

    Args:
        items: the arguments.
        lengths: of the items, for instance in source tokens.
        max_tokens: the maximum padded size of a batch. A beam search holds ``beam_size`` states for each item.
        function: takes the items of a batch and returns one result for each.
        max_items: the maximum number of items of a batch; None: any.

    Raises:
        ValueError: ``max_tokens`` or ``max_items`` is less than 1, or the numbers of items, lengths and results
            differ.
    """
    if len(lengths) != len(items):
        raise ValueError(f"{len(lengths)} lengths for {len(items)} items; expected one for each")
    results: dict[int, Result] = {}
    for batch in batches_by_length(lengths, max_tokens, max_items):
        results.update(zip(batch, function([items[index] for index in batch]), strict=True))
    return [results[index] for index in range(len(items))]


MaxLengths = Int[Tensor, " batch"] | Sequence[int] | int


def max_target_lengths(
    source_lengths: Int[Tensor, " batch"], ratio: float = 1.0, extra: int = 50, maximum: int | None = None
) -> Int[Tensor, " batch"]:
    """Return min(floor(ratio * source length) + extra, maximum): the most tokens of each target, <eos> included.

    The defaults are those of Vaswani et al. (2017). DuSell & Chiang (2024) allow 256 tokens for all sources.

    Args:
        source_lengths: in tokens; whether <eos> counts is the caller's choice.
        ratio: target tokens for each source token.
        extra: additional target tokens for each sentence.
        maximum: upper bound for all sentences; None: unbounded.
    """
    exact = Fraction(str(ratio)).limit_denominator(1_000_000)  # 1.15, not the binary number below it
    lengths = source_lengths.long() * exact.numerator // exact.denominator + extra
    return lengths.clamp(min=0, max=maximum)


def check_max_lengths(max_lengths: MaxLengths, batch_size: int) -> Int[Tensor, " batch"]:
    """Return one maximum length for each sentence, on the CPU.

    Raises:
        ValueError: one is negative, or there is not one for each sentence.
    """
    lengths = torch.as_tensor(max_lengths, dtype=torch.int64, device="cpu")
    lengths = lengths.expand(batch_size) if lengths.dim() == 0 else lengths
    if lengths.shape != (batch_size,):
        raise ValueError(
            f"max_lengths has shape {tuple(lengths.shape)}; expected one for each of {batch_size} sentences"
        )
    if batch_size and int(lengths.min()) < 0:
        raise ValueError(f"max_lengths holds {int(lengths.min())}; expected at least 0")
    return lengths


def check_prefixes(
    prefixes: Sequence[Sequence[int]] | None, max_lengths: Int[Tensor, " batch"], device: torch.device
) -> Int[Tensor, "batch time"]:
    """Return the forced tokens of each sentence, <pad> where any token may follow; no columns without prefixes.

    Raises:
        ValueError: there is not one prefix for each sentence, or one holds <pad>, <bos> or <eos>, or exceeds its
            sentence's maximum length.
    """
    if prefixes is None:
        return torch.zeros(len(max_lengths), 0, dtype=torch.int64, device=device)
    if len(prefixes) != len(max_lengths):
        raise ValueError(f"{len(prefixes)} prefixes for {len(max_lengths)} sentences; expected one for each")
    for index, (prefix, maximum) in enumerate(zip(prefixes, max_lengths.tolist(), strict=True)):
        if any(token <= EOS for token in prefix):
            raise ValueError(f"prefix {index} is {list(prefix)}; expected no <pad>, <bos> or <eos> in it")
        if len(prefix) > maximum:
            raise ValueError(f"prefix {index} has {len(prefix)} tokens; the maximum length of its text is {maximum}")
    return pad_sequences(prefixes, device)[0]
