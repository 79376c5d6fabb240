"""A recurrent language model."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import Explanation
from structattn.models.characters import SpelledEmbedding
from structattn.models.embedding import Embedding
from structattn.models.recurrent.deep import DeepRecurrence, DeepState
from structattn.models.recurrent.explanation import explain_stack
from structattn.models.recurrent.inputs import OneHot, remove_bos
from structattn.models.recurrent.recurrence import Recurrence
from structattn.operators import StackRnnState
from structattn.operators.common.implementation import Implementation
from structattn.support.special_tokens import BOS


@dataclass(frozen=True)
class RecurrentLanguageModelState:
    """The network's state, and whether the first token was processed: an immutable value."""

    network: StackRnnState | DeepState
    started: bool = False

    def select(self, indices: Int[Tensor, " chosen"]) -> "RecurrentLanguageModelState":
        """Return the states of some members of the batch, in the given order."""
        return RecurrentLanguageModelState(self.network.select(indices), self.started)


class RecurrentLanguageModel(nn.Module):
    """p(w_t | w_1..t-1) = softmax(W_o h_{t-1} + b_o) (DuSell & Chiang 2024, section 6).

    A leading <bos> is not an input of the network: it corresponds to the state before the first step, so that the first
    token is predicted from the initial hidden state h_0. n tokens give n + 1 predictions.

    Args:
        embedding: of the input tokens.
        recurrence: the network.
        output: from hidden states to logits; None: tied to an ``Embedding``, without bias.
    """

    def __init__(
        self,
        embedding: OneHot | Embedding | SpelledEmbedding,
        recurrence: Recurrence | DeepRecurrence,
        output: nn.Linear | None,
    ) -> None:
        super().__init__()
        self.embedding, self.recurrence, self.output = embedding, recurrence, output

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time classes"]:
        """Return the logits of the token after each position; class c stands for id c + 2.

        Args:
            tokens: ids; <pad> from each length on.
            lengths: number of tokens per sequence; None: no padding. Logits at padding are undefined.
        """
        return self._logits(self.hidden_states(tokens, lengths))

    def hidden_states(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time units"]:
        """Return the hidden state after each position; that after <bos> is the initial one."""
        inputs = remove_bos(tokens, lengths)
        hiddens = self.recurrence(self.embedding(inputs.tokens), inputs.lengths)
        return inputs.restore_bos(hiddens, self.recurrence.initial_hidden(len(tokens)))

    def initial_state(self, batch_size: int, implementation: Implementation = "auto") -> RecurrentLanguageModelState:
        """Return the state before the first token."""
        return RecurrentLanguageModelState(self.recurrence.initial_state(batch_size, implementation))

    def step(
        self, tokens: Int[Tensor, " batch"], state: RecurrentLanguageModelState
    ) -> tuple[Float[Tensor, "batch classes"], RecurrentLanguageModelState]:
        """Process one token of each sequence; return the logits of the next and the new state.

        Raises:
            ValueError: some sequences begin with <bos> and others do not.
        """
        network = state.network
        if state.started or not _all_have_bos(tokens):
            network = self.recurrence.step(self.embedding(tokens[:, None])[:, 0], network)  # type: ignore[arg-type]  # its own
        return self._logits(network.hidden), RecurrentLanguageModelState(network, started=True)

    @torch.no_grad()
    def explain(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> list[Explanation]:
        """Return the weights and actions of the stack after each token; an empty list without a stack.

        Raises:
            ValueError: some sequences begin with <bos> and others do not.
        """
        stack = self.recurrence.stack
        if stack is None:
            return []
        num_skipped = int(_all_have_bos(tokens[:, 0]))
        inputs = tokens[:, num_skipped:], None if lengths is None else (lengths - num_skipped).clamp(min=0)
        actions, _ = self.recurrence.stack_inputs(self.recurrence(self.embedding(inputs[0]), inputs[1]))
        return [explain_stack(stack, actions, inputs[1], num_skipped)]

    def _logits(self, hiddens: Tensor) -> Tensor:
        if self.output is None:
            assert isinstance(self.embedding, Embedding)
            return F.linear(hiddens, self.embedding.class_embeddings())
        logits: Tensor = self.output(hiddens)
        return logits


def _all_have_bos(tokens: Tensor) -> bool:
    has_bos = tokens == BOS
    if bool(has_bos.all()):
        return True
    if bool(has_bos.any()):
        raise ValueError("some sequences begin with <bos> and others do not; expected all or none")
    return False
