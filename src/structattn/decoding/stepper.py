"""What decoding needs of a model: its step and state; and the promise that its weights do not change."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from structattn.models.protocols import CausalModel
from structattn.support.shapes import Float, Int, Lengths
from structattn.support.special_tokens import BOS, EOS

Made = TypeVar("Made")

_kept: ContextVar[dict[Hashable, Any] | None] = ContextVar("made_of_constant_weights", default=None)


@contextmanager
def weights_unchanged() -> Iterator[None]:
    """Promise that no weight of a model changes, in this thread; around several batches, decoding is faster then."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def keep_if_unchanged(owner: Hashable, make: Callable[[], Made]) -> Made:
    """Return what ``make`` returns, or what it returned for this owner since weights do not change."""
    kept = _kept.get()
    if kept is None:
        return make()
    if owner not in kept:
        kept[owner] = make()
    made: Made = kept[owner]
    return made


@runtime_checkable
class DecoderState(Protocol):
    """Incremental state of a model for a batch: an immutable value."""

    def select(self, indices: Int[Tensor, " selected"]) -> "DecoderState":
        """Return the states of some members of the batch, in a new order; indices may repeat."""
        ...


@runtime_checkable
class Stepper(Protocol):
    """A model that predicts token by token: ``EncoderDecoder``, ``LanguageModel``, ``Ensemble``, or any like them.

    It should be in evaluation mode; otherwise dropout and sampled attention make each step random.
    """

    def step(self, tokens: Int[Tensor, " batch"], state: Any) -> tuple[Float[Tensor, "batch classes"], Any]:
        """Take one more token of each sentence; return logits for the next one, class c for id c + 2, and the state."""
        ...


class TranslationModel(Stepper, Protocol):
    """A model that translates a source: ``EncoderDecoder``, or what ``structattn.accelerate`` returns for one."""

    def __call__(self, *inputs: Tensor | None) -> Float[Tensor, "batch time classes"]:
        """Return the logits of whole sequences; see ``EncoderDecoder.forward``."""
        ...

    def initial_state(
        self,
        source: Int[Tensor, "batch source"],
        source_lengths: Lengths = None,
        oov_spellings: Int[Tensor, "oov characters"] | None = None,
    ) -> Any:
        """Return the state before the first target token; it includes the encoded source."""
        ...


@dataclass(frozen=True)
class DecodingStart:
    """A batch of sentences to be decoded.

    Args:
        state: of the model, before the first step.
        tokens: the first token to give to the model, usually <bos>.
    """

    state: DecoderState
    tokens: Int[Tensor, " batch"]


@dataclass(frozen=True)
class Hypothesis:
    """A decoded text.

    Args:
        tokens: all ids after <bos>: the prefix, the rest, and <eos> if the hypothesis is finished.
        log_probability: log p(tokens), in nats.
        score: the log-probability under the length penalty by which it was ranked.
        num_eos: the number of <eos> at which it ends: of lines, for a model of a stream.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    num_eos: int = 1

    @property
    def finished(self) -> bool:
        """Whether it ends in the last <eos>; otherwise it was cut."""
        return self.tokens[-1:] == (EOS,) and self.tokens.count(EOS) >= self.num_eos

    @property
    def text(self) -> tuple[int, ...]:
        """The ids without the last <eos>."""
        return self.tokens[:-1] if self.finished else self.tokens


@torch.no_grad()
def start_translation(
    model: TranslationModel,
    source: Int[Tensor, "batch source"],
    source_lengths: Lengths = None,
    rare: Int[Tensor, "rare characters"] | None = None,
) -> DecodingStart:
    """Encode the sources, once, and return the start of their translations.

    Args:
        model: in evaluation mode.
        source: ids that end with <eos>, padded with <pad>.
        source_lengths: number of tokens of each source; None: no padding.
        rare: spellings of the ids past the source vocabulary; see ``EncoderDecoder.forward``.
    """
    return DecodingStart(model.initial_state(source, source_lengths, rare), source.new_full((source.shape[0],), BOS))


@torch.no_grad()
def start_continuation(model: CausalModel, prompts: Int[Tensor, "batch time"]) -> DecodingStart:
    """Process the prompts token by token, and return the start of their continuations.

    Prompts are part neither of the decoded text nor of its score. All prompts of a batch have the same length, because
    the state of a model holds one position for the whole batch. For prompts of different lengths, pass <bos> alone here
    and the rest as prefixes, whose log-probability counts.

    Args:
        model: in evaluation mode.
        prompts: ids that begin with <bos>, or with <eos> in a stream.

    Raises:
        ValueError: the prompts are empty.
    """
    if prompts.shape[1] == 0:
        raise ValueError("empty prompts; expected at least <bos>")
    state = model.initial_state(prompts.shape[0])
    for tokens in prompts[:, :-1].unbind(1):
        _, state = model.step(tokens, state)
    return DecodingStart(state, prompts[:, -1])


def pad_sequences(
    sequences: Sequence[Sequence[int]], device: torch.device | str = "cpu"
) -> tuple[Int[Tensor, "batch time"], Int[Tensor, " batch"]]:
    """Return sequences of ids as one tensor, padded with <pad>, and their lengths."""
    lengths = torch.tensor([len(sequence) for sequence in sequences], dtype=torch.int64, device="cpu")
    ids = lengths.new_zeros(len(sequences), int(lengths.max()) if len(sequences) else 0)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = torch.as_tensor(sequence, dtype=torch.int64, device="cpu")
    return ids.to(device), lengths.to(device)
