"""How long a text may become, and what it must begin with."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from structattn.decoding.stepper import padded
from structattn.support.special_tokens import EOS

Limits = Int[Tensor, " batch"] | Sequence[int] | int


def length_limits(
    source_lengths: Int[Tensor, " batch"], ratio: float = 1.0, extra: int = 50, most: int | None = None
) -> Int[Tensor, " batch"]:
    """min(floor(ratio * source length) + extra, most): how many tokens a target may have, <eos> counted.

    The defaults are those of Vaswani et al. (2017). DuSell & Chiang (2024) allow 256 whatever the source.

    Args:
        source_lengths: in tokens; whether <eos> counts is the caller's choice.
        ratio: target tokens for each source token.
        extra: added to all.
        most: where there is an end to it.
    """
    limits = (source_lengths.double() * ratio).floor().long() + extra
    return limits.clamp(min=0, max=most)


def checked_limits(limits: Limits, batch: int) -> Int[Tensor, " batch"]:
    """One limit for each sentence, on the CPU, where the loop looks at them.

    Raises:
        ValueError: a negative limit, or another number of them than there are sentences.
    """
    found = torch.as_tensor(limits, dtype=torch.int64).cpu()
    found = found.expand(batch) if found.dim() == 0 else found
    if found.shape != (batch,):
        raise ValueError(f"limits of shape {tuple(found.shape)} for {batch} sentences; expected one for each")
    if batch and int(found.min()) < 0:
        raise ValueError(f"a limit of {int(found.min())} tokens; expected at least 0")
    return found


def checked_prefixes(
    prefixes: Sequence[Sequence[int]] | None, limits: Int[Tensor, " batch"], device: torch.device
) -> Int[Tensor, "batch time"]:
    """The forced tokens of each sentence, <pad> where it is free; no column where nothing is forced.

    Raises:
        ValueError: there are not as many prefixes as sentences, one holds <pad>, <bos> or <eos>, or one is longer than
            its sentence's limit.
    """
    if prefixes is None:
        return torch.zeros(len(limits), 0, dtype=torch.int64, device=device)
    if len(prefixes) != len(limits):
        raise ValueError(f"{len(prefixes)} prefixes for {len(limits)} sentences; expected one for each")
    for index, (prefix, limit) in enumerate(zip(prefixes, limits.tolist(), strict=True)):
        if any(token <= EOS for token in prefix):
            raise ValueError(f"prefix {index} is {list(prefix)}; expected no <pad>, <bos> or <eos> in it")
        if len(prefix) > limit:
            raise ValueError(f"prefix {index} has {len(prefix)} tokens; its text may have at most {limit}")
    return padded(prefixes, device)[0]
