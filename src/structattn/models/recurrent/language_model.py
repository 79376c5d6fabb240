"""A recurrent language model."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention import Explanation
from structattn.models.characters import SpelledEmbedding
from structattn.models.embedding import Embedding
from structattn.models.recurrent.explanation import explain_stack
from structattn.models.recurrent.inputs import OneHot, without_bos
from structattn.models.recurrent.recurrence import Recurrence
from structattn.operators import StackRnnState
from structattn.operators.common.implementation import Implementation
from structattn.support.special_tokens import BOS


@dataclass(frozen=True)
class RecurrentLanguageModelState:
    """The network's state, and whether a token was given yet: a value, never mutated."""

    network: StackRnnState
    begun: bool = False

    def select(self, indices: Int[Tensor, " chosen"]) -> "RecurrentLanguageModelState":
        """The states of some members of the batch, in a new order."""
        return RecurrentLanguageModelState(self.network.select(indices), self.begun)


class RecurrentLanguageModel(nn.Module):
    """p(w_t | w_1..t-1) = softmax(W_o h_{t-1} + b_o) (DuSell & Chiang 2024, section 6).

    A <bos> is not read: it stands for the state before the first step, so that the first token is predicted from
    h_0 = 0, from b_o alone. n tokens give n + 1 predictions.

    Args:
        embedding: of the tokens that are read.
        recurrence: the network.
        output: from its units to a logit for each class.
    """

    def __init__(
        self, embedding: OneHot | Embedding | SpelledEmbedding, recurrence: Recurrence, output: nn.Linear
    ) -> None:
        super().__init__()
        self.embedding, self.recurrence, self.output = embedding, recurrence, output

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time classes"]:
        """Logits for the token after each position; class c stands for id c + 2.

        Args:
            tokens: ids; <pad> from each length on.
            lengths: how many tokens of each sequence count; all where None. Logits past them mean nothing.
        """
        read = without_bos(tokens, lengths)
        hiddens = self.recurrence(self.embedding(read.tokens), read.lengths)
        logits: Tensor = self.output(read.placed(hiddens))
        return logits

    def initial_state(self, batch_size: int, implementation: Implementation = "auto") -> RecurrentLanguageModelState:
        """The state before the first token."""
        return RecurrentLanguageModelState(self.recurrence.initial_state(batch_size, implementation))

    def step(
        self, tokens: Int[Tensor, " batch"], state: RecurrentLanguageModelState
    ) -> tuple[Float[Tensor, "batch classes"], RecurrentLanguageModelState]:
        """Take one token more; logits for the next, and the state after it.

        Raises:
            ValueError: some sequences begin with <bos>, and others do not.
        """
        network = state.network
        if state.begun or not _all_begin(tokens):
            network = self.recurrence.step(self.embedding(tokens[:, None])[:, 0], network)
        return self.output(network.hidden), RecurrentLanguageModelState(network, begun=True)

    @torch.no_grad()
    def explain(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> list[Explanation]:
        """What the stack is told and what is read from it after each token; nothing where there is no stack.

        Raises:
            ValueError: some sequences begin with <bos>, and others do not.
        """
        stack = self.recurrence.stack
        if stack is None:
            return []
        skipped = int(_all_begin(tokens[:, 0]))
        read = tokens[:, skipped:], None if lengths is None else (lengths - skipped).clamp(min=0)
        actions, _ = self.recurrence.told(self.recurrence(self.embedding(read[0]), read[1]))
        return [explain_stack(stack, actions, read[1], skipped)]


def _all_begin(tokens: Tensor) -> bool:
    begins = tokens == BOS
    if bool(begins.all()):
        return True
    if bool(begins.any()):
        raise ValueError("some sequences begin with <bos> and others do not; expected all or none")
    return False
