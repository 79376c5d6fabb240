"""How many symbols of an answer are right."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention.positions import SinusoidalPositions
from structattn.data.tokenization.vocabulary import Vocabulary
from structattn.data.transductions import Transduction
from structattn.support.special_tokens import CLASS_OFFSET, class_of, id_of
from structattn.tasks.transduction.batches import Form, Ids, batch_of


@dataclass(frozen=True)
class Tally:
    """What a model reaches on pairs of one length of x.

    Args:
        length: of x.
        num_pairs: the number of pairs.
        num_tokens: the number of tokens of y, padding included.
        loss_sum: -log p(y | x), summed over all of them.
        counted: the symbols that count for accuracy.
        right: how many of those the model thinks likeliest, given x and, in the autoregressive form, what y has before.
    """

    length: int
    num_pairs: int
    num_tokens: int
    loss_sum: float
    counted: int
    right: int

    @property
    def accuracy(self) -> float:
        """The part that is right."""
        return self.right / self.counted


@torch.no_grad()
def tally(model: nn.Module, task: Transduction, vocabulary: Vocabulary, x: Ids, y: Ids, form: Form) -> Tally:
    """Score pairs of one length; the model's mode is left as it is."""
    batch = batch_of(x, y, vocabulary, form)
    device = next(model.parameters()).device
    logits = model(batch.inputs.to(device))[:, -y.shape[1] :]
    classes = torch.from_numpy(class_of(y)).to(device)
    loss_sum = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), reduction="sum")
    counted = torch.from_numpy(counted_positions(task, vocabulary, y)).to(device)
    right = (logits.argmax(-1) == classes) & counted
    return Tally(x.shape[1], len(x), y.size, loss_sum.item(), int(counted.sum()), int(right.sum()))


def counted_positions(task: Transduction, vocabulary: Vocabulary, y: Ids) -> np.ndarray:
    """Which symbols of y, given as token ids, count for accuracy."""
    index = {vocabulary.id_of[symbol]: place for place, symbol in enumerate(task.outputs)}
    return task.counted(np.vectorize(index.__getitem__, otypes=[np.int64])(y))


@torch.no_grad()
def right_when_greedy(model: nn.Module, task: Transduction, vocabulary: Vocabulary, x: Ids, y: Ids) -> int:
    """How many counted symbols are right if the model reads its own answers, the likeliest at each step, instead of y.

    That is how the code behind the published autoregressive numbers scores (Li et al. 2024). Cost: |y| steps, or, of a
    model that cannot go step by step, |y| readings of the whole.
    """
    device = next(model.parameters()).device
    prompt = batch_of(x, y[:, :1], vocabulary, "autoregressive").inputs.to(device)
    answer = _step_by_step if _has_steps(model) else _reading_again
    given = answer(model, prompt, y.shape[1]).cpu().numpy()
    return int(((given == y) & counted_positions(task, vocabulary, y)).sum())


def _has_steps(model: nn.Module) -> bool:
    """Not where positions count backwards from an end that has not come yet."""
    return not any(
        isinstance(module, SinusoidalPositions) and module.direction == "backward" for module in model.modules()
    )


def _step_by_step(model: Any, prompt: Int[Tensor, "pairs prompt"], count: int) -> Int[Tensor, "pairs count"]:
    state = model.initial_state(len(prompt))
    for tokens in prompt.unbind(1):
        logits, state = model.step(tokens, state)
    answers = [id_of(logits.argmax(-1))]
    for _ in range(count - 1):
        logits, state = model.step(answers[-1], state)
        answers.append(id_of(logits.argmax(-1)))
    return torch.stack(answers, dim=1)


def _reading_again(model: Any, prompt: Int[Tensor, "pairs prompt"], count: int) -> Int[Tensor, "pairs count"]:
    """The same, of the whole length from the start; what fills the places to come is not seen from those before it."""
    length = prompt.shape[1]
    tokens = F.pad(prompt, (0, count), value=CLASS_OFFSET)
    for place in range(length, length + count):
        tokens[:, place] = id_of(model(tokens[:, :-1])[:, place - 1].argmax(-1))
    return tokens[:, length:]
