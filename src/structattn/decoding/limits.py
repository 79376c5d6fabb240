"""Maximum lengths and forced prefixes of decoded texts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from structattn.decoding.stepper import pad_sequences
from structattn.support.shapes import Int
from structattn.support.special_tokens import EOS

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
    lengths = (source_lengths.double() * ratio).floor().long() + extra
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
