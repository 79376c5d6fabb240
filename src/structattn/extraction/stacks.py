"""The stack of a trained language model, as extraction reads it and writes to it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from structattn.attention import NondeterministicStackAttention, SuperpositionStackAttention
from structattn.extraction.automaton import Action
from structattn.loading.trained_run import TrainedRun
from structattn.models import LanguageModel, LoopedLayers
from structattn.operators import nondeterministic_stack_best_run
from structattn.support.errors import UsageError
from structattn.support.shapes import Float, Int
from structattn.support.threads import in_this_thread

_ACTIONS: tuple[Action, ...] = ("push", "replace", "pop")
FORBIDDEN = -1e4


class Step(NamedTuple):
    """A step of a run: what it does, the state after it, and the symbol that it leaves on top unless it pops."""

    action: Action
    state: int
    symbol: int


Run = tuple[Step, ...]


class StackReader(Protocol):
    """Reads outputs of the projection of a stack layer, (B, T, sum(sizes)): log-weights, then what is pushed."""

    @property
    def layer(self) -> nn.Module:
        """The stack layer, whose projection is its submodule ``projection``."""

    @property
    def sizes(self) -> Sequence[int]:
        """The numbers of log-weights and of outputs that say what is pushed."""

    def features(self, output: Float[Tensor, "batch time outputs"]) -> Float[Tensor, "batch time weights"]:
        """Return the log-weights of all transitions, relative to the largest of each step."""

    def weights(self, features: Float[Tensor, "*batch weights"]) -> Float[Tensor, "*batch weights"]:
        """Return the outputs of the projection that have these features."""

    def runs(self, output: Float[Tensor, "batch time outputs"], lengths: Int[Tensor, " batch"]) -> list[list[Run]]:
        """Return, for each sequence, the best run of each of its prefixes, the shortest first."""

    def only(self, allowed: Sequence["Allowed"]) -> Float[Tensor, " weights"]:
        """Return outputs of the projection that give all allowed transitions equal weights, and no weight to others."""

    def pushed(self, values: Float[Tensor, "*batch vector"]) -> Float[Tensor, "*batch vector"]:
        """Return the vectors that the outputs of the projection push."""


class Allowed(NamedTuple):
    """A transition of a stack: state and symbol before it, and the step."""

    state: int
    top: int
    step: Step


@dataclass(frozen=True)
class NondeterministicReader:
    """Reads a nondeterministic stack."""

    layer: NondeterministicStackAttention

    @property
    def sizes(self) -> Sequence[int]:
        """See ``StackReader``."""
        return self.layer.sizes

    def _offset(self) -> Tensor:
        return self.layer.transition_offsets().float()

    def features(self, output: Tensor) -> Tensor:
        """See ``StackReader``."""
        logits = output[..., : self.sizes[0]] + self._offset().to(output.device)
        return logits - logits.amax(-1, keepdim=True)

    def weights(self, features: Tensor) -> Tensor:
        """See ``StackReader``."""
        return features - self._offset()

    def runs(self, output: Tensor, lengths: Tensor) -> list[list[Run]]:
        """See ``StackReader``."""
        return [self._of_prefixes(row[:length]) for row, length in zip(output, lengths.tolist(), strict=True)]

    def _of_prefixes(self, output: Tensor) -> list[Run]:
        time = len(output)
        push, replace, pop = self.layer._transitions(output[None, :, : self.sizes[0]])
        logits = (x.expand(time, *x.shape[1:]) for x in (push, replace, pop))
        lengths = torch.arange(1, time + 1, device=output.device)
        found = nondeterministic_stack_best_run(*logits, lengths=lengths, window=self.layer.window)
        columns = (x.tolist() for x in found[:3])
        return [
            tuple(Step(_ACTIONS[action], state, symbol) for action, state, symbol in zip(*each, strict=True))[: t + 1]
            for t, each in enumerate(zip(*columns, strict=True))
        ]

    def only(self, allowed: Sequence[Allowed]) -> Tensor:
        """See ``StackReader``."""
        states, symbols = self.layer.num_states, self.layer.stack_alphabet_size
        moves = states * symbols
        weights = torch.full((states, symbols, 2 * moves + states), -torch.inf)
        for q, x, (action, r, y) in allowed:
            start = {"push": 0, "replace": moves, "pop": 2 * moves}[action]
            weights[q, x, start + (r if action == "pop" else r * symbols + y)] = 0.0
        return weights.flatten() - self._offset()

    def pushed(self, values: Tensor) -> Tensor:
        """See ``StackReader``."""
        return values.sigmoid() if self.layer.pushed_activation == "sigmoid" else values.exp()


@dataclass(frozen=True)
class SuperpositionReader:
    """Reads a superposition stack by its most probable action at each step.

    It has one state and one symbol: a no-op leaves the top as it is, and so does a pop of the empty stack.
    """

    layer: SuperpositionStackAttention

    @property
    def sizes(self) -> Sequence[int]:
        """See ``StackReader``."""
        return self.layer.sizes

    def features(self, output: Tensor) -> Tensor:
        """See ``StackReader``."""
        logits = output[..., : self.sizes[0]]
        return logits - logits.amax(-1, keepdim=True)

    def weights(self, features: Tensor) -> Tensor:
        """See ``StackReader``."""
        return features

    def runs(self, output: Tensor, lengths: Tensor) -> list[list[Run]]:
        """See ``StackReader``."""
        actions = output[..., : self.sizes[0]].argmax(-1).tolist()
        return [self._of_prefixes(row[:length]) for row, length in zip(actions, lengths.tolist(), strict=True)]

    def _of_prefixes(self, actions: list[int]) -> list[Run]:
        steps, height = list[Step](), 0
        for index in actions:
            action = _ACTIONS[index]
            if action == "pop" and height == 0:
                action = "replace"
            height += {"push": 1, "replace": 0, "pop": -1}[action]
            steps.append(Step(action, 0, 0))
        return [tuple(steps[: t + 1]) for t in range(len(steps))]

    def only(self, allowed: Sequence[Allowed]) -> Tensor:
        """See ``StackReader``."""
        weights = torch.full((self.sizes[0],), FORBIDDEN)
        for each in allowed:
            weights[_ACTIONS.index(each.step.action)] = 0.0
        return weights

    def pushed(self, values: Tensor) -> Tensor:
        """See ``StackReader``."""
        return values.sigmoid() if self.layer.pushed_activation == "sigmoid" else values


def stack_reader(run: TrainedRun, layer: int | None = None) -> StackReader:
    """Return the reader of the only stack of a language model, or of that in a layer, counted from 0.

    Raises:
        UsageError: the model is no transformer language model, has loops, or has no stack there, several, or one of
            another kind.
    """
    if not isinstance(run.model, LanguageModel):
        kind = run.settings.model.kind
        raise UsageError(f"{run.run_dir}: is a model of kind {kind!r}; expected a transformer language model")
    if isinstance(run.model.layers, LoopedLayers):
        raise UsageError(f"{run.run_dir}: has loops, in which a stack runs several times; expected a model without")
    stacks = [
        (index, module)
        for index, block in enumerate(run.model.layers.blocks)
        for module in block.modules()
        if isinstance(module, NondeterministicStackAttention | SuperpositionStackAttention)
    ]
    found = [each for each in stacks if layer in (None, each[0])]
    if len(found) != 1:
        where = "" if layer is None else f" in layer {layer}"
        layers = ", ".join(str(index) for index, _ in stacks)
        expected = (
            f"one of the layers with stacks: {layers}" if layers else "a nondeterministic or a superposition stack"
        )
        raise UsageError(f"{run.run_dir}: {len(found)} stacks{where}; expected {expected}")
    ((_, module),) = found
    if isinstance(module, NondeterministicStackAttention):
        return NondeterministicReader(module)
    if module.num_heads > 1:
        raise UsageError(f"{run.run_dir}: a layer of {module.num_heads} superposition stacks; expected one")
    return SuperpositionReader(module)


@contextmanager
def projection_hook(reader: StackReader, hook: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Call a function with each output of the projection, within the context and this thread.

    What it returns replaces the output.
    """

    def with_output(module: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
        return hook(output)

    handle = reader.layer.get_submodule("projection").register_forward_hook(in_this_thread(with_output))
    try:
        yield
    finally:
        handle.remove()


@dataclass(frozen=True)
class Observation:
    """What a model does on one string of n symbols, in T = n + 1 steps of which the first reads ``<bos>``.

    Args:
        ids: of ``<bos>`` and the symbols, (T,).
        features: see ``StackReader``.
        values: the outputs of the projection that say what is pushed, (T, m).
        log_probabilities: of the end and of each symbol of the alphabet after each step, (T, 1 + symbols).
        runs: the best run of each prefix; None where they were not asked for.
    """

    ids: Int[np.ndarray, " time"]
    features: Float[np.ndarray, "time weights"]
    values: Float[np.ndarray, "time vector"]
    log_probabilities: Float[np.ndarray, "time classes"]
    runs: tuple[Run, ...] | None = None
