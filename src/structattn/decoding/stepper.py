"""What decoding needs of a model: one step at a time from a state that can be reordered, and a way to begin."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.models import EncoderDecoder, LanguageModel
from structattn.support.special_tokens import BOS


@runtime_checkable
class DecoderState(Protocol):
    """All that a model must know of what it has read: a value, never mutated."""

    def select(self, indices: Int[Tensor, " chosen"]) -> "DecoderState":
        """The states of some members of the batch, in a new order, repeated at will."""
        ...


@runtime_checkable
class Stepper(Protocol):
    """A model with a one-step door: ``EncoderDecoder``, ``LanguageModel``, ``Ensemble``, or anything alike.

    It should be in evaluation mode, or dropout and drawn attention make every step a throw of the dice.
    """

    def step(self, tokens: Int[Tensor, " batch"], state: Any) -> tuple[Float[Tensor, "batch classes"], Any]:
        """Read one token more of each member; logits for the next, class c for id c + 2, and the state after it."""
        ...


@dataclass(frozen=True)
class Start:
    """Sentences about to be decoded.

    Args:
        state: after all that was read; something that can ``select``.
        tokens: what each sentence reads next, <bos> where nothing else was given.
    """

    state: DecoderState
    tokens: Int[Tensor, " batch"]


@torch.no_grad()
def translation(
    model: EncoderDecoder,
    source: Int[Tensor, "batch source"],
    source_lengths: Int[Tensor, " batch"] | None = None,
    rare: Int[Tensor, "rare characters"] | None = None,
) -> Start:
    """Targets of these sources, from <bos> on. The sources are encoded here, once.

    Args:
        model: what translates.
        source: ids that end with <eos>; <pad> from each length on.
        source_lengths: how many tokens of each source count; all where None.
        rare: spellings of ids past the source's vocabulary, for a model that spells its source.
    """
    return Start(model.initial_state(source, source_lengths, rare), source.new_full((source.shape[0],), BOS))


@torch.no_grad()
def continuation(model: LanguageModel, prompts: Int[Tensor, "batch time"]) -> Start:
    """What comes after these prompts. They are read here, token by token, and count neither as text nor in scores.

    Prompts of one batch are of one length, because a model's state knows one position for all. Where they are not, give
    <bos> alone here and the rest as forced prefixes, which do count.

    Args:
        model: what goes on.
        prompts: ids that begin with <bos>, or with <eos> in a stream.

    Raises:
        ValueError: there is not a single token to begin with.
    """
    if prompts.shape[1] == 0:
        raise ValueError("prompts without a token; expected <bos> at least")
    state = model.initial_state(prompts.shape[0])
    for tokens in prompts[:, :-1].unbind(1):
        _, state = model.step(tokens, state)
    return Start(state, prompts[:, -1])


def padded(
    sequences: Sequence[Sequence[int]], device: torch.device | str = "cpu"
) -> tuple[Int[Tensor, "batch time"], Int[Tensor, " batch"]]:
    """Sequences of ids as one tensor, with <pad>, id 0, from each one's length on; and the lengths."""
    lengths = torch.tensor([len(sequence) for sequence in sequences], dtype=torch.int64)
    ids = torch.zeros(len(sequences), int(lengths.max()) if len(sequences) else 0, dtype=torch.int64)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = torch.as_tensor(sequence, dtype=torch.int64)
    return ids.to(device), lengths.to(device)
