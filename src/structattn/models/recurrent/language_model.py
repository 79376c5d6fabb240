"""A recurrent language model, and the explanation of its stack."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import Explanation
from structattn.attention.nondeterministic_stack import weights_and_runs
from structattn.models.characters.embedding import SpelledEmbedding
from structattn.models.embedding import Embedding, class_logits
from structattn.models.recurrent.deep import DeepRecurrence, DeepState
from structattn.models.recurrent.recurrence import OneHot, Recurrence, remove_bos
from structattn.operators import (
    RecurrentStack,
    StackRnnState,
    stratified_stack_weights,
    superposition_stack_weights,
)
from structattn.operators.common.checks import mask_padding, require_lengths, wrong_batch
from structattn.operators.common.implementation import Implementation
from structattn.operators.common.stack_contents import StackContents
from structattn.operators.common.states import Selectable
from structattn.operators.nondeterministic_stack.contents import nondeterministic_stack_contents
from structattn.operators.stratified_stack.reference import stratified_stack_contents
from structattn.operators.superposition_stack import superposition_step
from structattn.operators.superposition_stack.reference import superposition_stack_contents
from structattn.support.shapes import Float, Int, Lengths
from structattn.support.special_tokens import BOS


def explain_stack(stack: RecurrentStack, actions: Tensor, lengths: Tensor | None, num_skipped: int) -> Explanation:
    """Return the weights of the pushed vectors in each reading, and the actions.

    Args:
        stack: kind and sizes of the stack.
        actions: action logits of the network, (B, T, A).
        lengths: number of steps per sequence; None: no padding.
        num_skipped: number of positions before the first step, which get zeros.
    """
    match stack.name:
        case "superposition":
            strengths = mask_padding(torch.softmax(actions, -1), lengths)
            weights, details = _superposition_weights(strengths, lengths, stack.depth), {"actions": strengths}
            contents = partial(superposition_stack_contents, strengths, lengths=lengths, limit=stack.depth)
        case "stratified":
            strengths = mask_padding(torch.sigmoid(actions), lengths)
            weights, details = stratified_stack_weights(strengths, lengths=lengths), {"actions": strengths}
            contents = partial(stratified_stack_contents, strengths, lengths=lengths)
        case "nondeterministic":
            transitions = stack.transitions(mask_padding(actions, lengths))
            weights, details = weights_and_runs(transitions, lengths, stack.window)
            contents = partial(nondeterministic_stack_contents, *transitions, lengths=lengths, window=stack.window)
    bottom = int(stack.name == "nondeterministic")
    weights = F.pad(weights, (0, 0, num_skipped, 0))
    weights = torch.cat([weights[..., :bottom], F.pad(weights[..., bottom:], (num_skipped, 0))], -1)
    details = {name: F.pad(detail, (0, 0, num_skipped, 0)) for name, detail in details.items()}
    return Explanation(
        stack.name,
        weights[:, None],
        first_source=1 if bottom else 0,
        details=details,
        sublayer="stack",
        contents=partial(_later_contents, contents, bool(bottom), num_skipped),
    )


def _later_contents(
    contents: Callable[[int], StackContents], bottom: bool, num_skipped: int, depths: int
) -> StackContents:
    """Return the contents with zeros for the positions before the first step."""
    later = contents(depths).after(num_skipped)
    return later if bottom else later.without_bottom()


def _superposition_weights(actions: Tensor, lengths: Tensor | None, depth: int | None) -> Tensor:
    """Weights of the pushed vectors: the readings of a stack onto which step j pushes the j-th unit vector."""
    if depth is None:
        return superposition_stack_weights(actions, lengths=lengths)
    units = torch.eye(actions.shape[1], dtype=actions.dtype, device=actions.device)
    rows, readings = actions.new_zeros(len(actions), 0, len(units)), [actions.new_zeros(len(actions), 0, len(units))]
    for action, unit in zip(actions.unbind(1), units, strict=True):
        rows = superposition_step(rows, action, unit.expand(len(actions), -1), depth)
        readings.append(rows[:, :1])
    return mask_padding(torch.cat(readings, 1), lengths)


@dataclass(frozen=True)
class RecurrentLanguageModelState(Selectable):
    """The network's state, and whether the first token was processed: an immutable value."""

    network: StackRnnState | DeepState
    started: bool = False


class RecurrentLanguageModel(nn.Module):
    """p(w_t | w_1..t-1) = softmax(W_o h_{t-1} + b_o) (DuSell & Chiang 2024, section 6).

    A leading <bos> is not an input of the network: it corresponds to the state before the first step, so that the first
    token is predicted from the initial hidden state h_0. n tokens give n + 1 predictions.

    Args:
        output: from hidden states to logits; None: tied to an ``Embedding``, without bias.
    """

    def __init__(
        self,
        embedding: OneHot | Embedding | SpelledEmbedding,
        recurrence: Recurrence | DeepRecurrence,
        output: nn.Module | None,
    ) -> None:
        super().__init__()
        self.embedding, self.recurrence, self.output = embedding, recurrence, output

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time classes"]:
        """Return the logits of the token after each position; class c stands for id c + 2.

        Args:
            tokens: ids; <pad> from each length on.
            lengths: number of tokens per sequence; None: no padding. Logits at padding are undefined.
        """
        return class_logits(self.hidden_states(tokens, lengths), self.output, self.embedding)

    def hidden_states(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None
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
            ValueError: some sequences begin with <bos> and others do not, or the state has another batch size.
        """
        network = state.network
        if len(tokens) != len(network.hidden):
            raise wrong_batch(tokens, network.hidden)
        if state.started or not _all_have_bos(tokens):
            network = self.recurrence.step(self.embedding(tokens[:, None])[:, 0], network)  # type: ignore[arg-type]  # its own
        logits = class_logits(network.hidden, self.output, self.embedding)
        return logits, RecurrentLanguageModelState(network, started=True)

    @torch.no_grad()
    def explain(self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None) -> list[Explanation]:
        """Return the weights and actions of the stack after each token; an empty list without a stack.

        Dropout is active in training mode.

        Raises:
            ValueError: some sequences begin with <bos> and others do not.
        """
        stack = self.recurrence.stack
        if stack is None:
            return []
        if lengths is not None:
            require_lengths(lengths, len(tokens))
        num_skipped = int(tokens.shape[1] > 0 and _all_have_bos(tokens[:, 0]))
        inputs = tokens[:, num_skipped:], None if lengths is None else (lengths - num_skipped).clamp(min=0)
        network = self.recurrence.undropped if isinstance(self.recurrence, DeepRecurrence) else self.recurrence
        actions, _ = self.recurrence.stack_inputs(network(self.embedding(inputs[0]), inputs[1]))
        return [explain_stack(stack, actions, inputs[1], num_skipped)]


def _all_have_bos(tokens: Tensor) -> bool:
    has_bos = tokens == BOS
    if bool(has_bos.all()):
        return True
    if bool(has_bos.any()):
        raise ValueError("some sequences begin with <bos> and others do not; expected all or none")
    return False
