"""Looped transformers: some layers are applied several times with the same weights; and blanks to compute in."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from structattn.attention import Explanation
from structattn.models.layers import Layers, LayersState
from structattn.operators.common.checks import checked_lengths
from structattn.operators.common.states import Selectable
from structattn.support.shapes import Float, Int, Lengths

Apply = Callable[[Any, Tensor, Tensor | None], Tensor]  # Layers, their input, and which positions take the output


@dataclass(frozen=True)
class LoopedState(Selectable):
    """The states of all parts: an immutable value.

    Args:
        prelude: of the layers before.
        loops: of the repeated layers, one for each repetition so far.
        coda: of the layers after.
        inputs: what repetitions that are yet to come read at the positions so far; none if the count is a number.
    """

    prelude: LayersState
    loops: tuple[LayersState, ...]
    coda: LayersState
    inputs: Float[Tensor, "batch time d_model"]

    @property
    def position(self) -> int:
        """The number of positions so far."""
        return self.prelude.position


class LoopedLayers(nn.Module):
    """X_0 = prelude(E), X_(k+1) = looped(X_k + E) for k = 0 .. R - 1, Y = coda(X_R), E the embeddings.

    Such transformers are studied in theory by Merrill & Sabharwal (2025); the details here are ours. With
    ``count="log"``, R is factor * ceil(log2(p + 1)), where p is the number of positions, <bos> included: with
    bidirectional layers those of the sequence; with causal ones those up to a position, which then keeps its X_R and is
    still read by later ones. So R depends neither on other sequences of the batch nor, in causal models, on what is
    still to come.

    Cost: R times that of the repeated layers. A step for which R grows runs the new repetition over all positions
    before, which doubles the cost of all steps together at most.

    Args:
        prelude: applied once.
        looped: the repeated layers.
        coda: applied once, with the final layer norm.
        count: R, or "log".
        factor: see above; for "log" only.
        maximum: the largest R of "log"; None: no limit.
        injected: whether E is added before each repetition; without, deep loops forget their input.
        causal: whether the layers are.

    Raises:
        ValueError: R, the factor or the maximum is no whole number of at least 0.
    """

    prelude: Any  # Layers, whose hidden states are of one stream here
    looped: Any
    coda: Any

    def __init__(
        self,
        prelude: Layers,
        looped: Layers,
        coda: Layers,
        count: int | Literal["log"],
        factor: int = 1,
        maximum: int | None = None,
        injected: bool = True,
        causal: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("count", 0 if count == "log" else count), ("factor", factor), ("maximum", maximum or 0)):
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"{name}={value!r}; expected a whole number of at least 0")
        self.prelude, self.looped, self.coda = prelude, looped, coda
        self.count, self.factor, self.maximum = count, factor, maximum
        self.injected, self.causal = injected, causal

    @property
    def blocks(self) -> list[Any]:
        """The blocks of all parts, each once."""
        return [*self.prelude.blocks, *self.looped.blocks, *self.coda.blocks]

    def repetitions(self, num_positions: int) -> int:
        """Return R for p positions."""
        if self.count != "log":
            return self.count
        count = self.factor * num_positions.bit_length()  # ceil(log2(p + 1))
        return count if self.maximum is None else min(count, self.maximum)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        lengths: Lengths = None,
        counted: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Outputs at padding are undefined.

        Args:
            x: the embeddings.
            lengths: the number of positions of each sequence; None: all.
            counted: the number of its positions on which R depends at most; None: all.
        """
        return self._run(x, lengths, lambda layers, x, _: layers(x, lengths), counted)

    def hidden_states(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Return the output for whole sequences."""
        y: Tensor = self(x, lengths)
        return y

    def attend(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> tuple[Float[Tensor, "batch time d_model"], list[tuple[Tensor | None, Tensor | None]]]:
        """Return the output and the weights of each block at each repetition (``Block.attend``)."""
        weights: list[tuple[Tensor | None, Tensor | None]] = []

        def attending(layers: Any, x: Tensor, active: Tensor | None) -> Tensor:
            y: Tensor
            y, found = layers.attend(x, lengths)
            weights.extend((None if own is None else _active_rows(own, active), None) for own, _ in found)
            return y

        return self._run(x, lengths, attending), weights

    @torch.no_grad()
    def explain(self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None) -> list[Explanation]:
        """Return the attention weights of each sublayer; layers are counted over all repetitions.

        Positions that keep their state have the weight zero everywhere.
        """
        explanations: list[Explanation] = []
        depth = 0

        def explaining(layers: Any, x: Tensor, active: Tensor | None) -> Tensor:
            nonlocal depth
            for each in layers.explain(x, lengths):
                weights = _active_rows(each.weights, active)
                explanations.append(replace(each, weights=weights, layer=depth + each.layer))
            depth += len(layers.blocks)
            y: Tensor = layers(x, lengths)
            return y

        self._run(x, lengths, explaining)
        return explanations

    def initial_state(self, batch_size: int) -> LoopedState:
        """Return the state before the first position."""
        counted = 0 if self.count == "log" else self.count
        loops = tuple(self.looped.initial_state(batch_size) for _ in range(counted))
        like = next(self.parameters())
        inputs = like.new_zeros(batch_size, 0, 0)
        return LoopedState(self.prelude.initial_state(batch_size), loops, self.coda.initial_state(batch_size), inputs)

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: LoopedState
    ) -> tuple[Float[Tensor, "batch d_model"], LoopedState]:
        """Process one position; return its output and the new state."""
        x, prelude = self.prelude.step(x_t, state.prelude)
        loops, inputs = list(state.loops), state.inputs
        for k in range(self.repetitions(prelude.position)):
            if k == len(loops):
                loops.append(self._caught_up(len(x_t), inputs))
            x, loops[k] = self.looped.step(self._with_input(x, x_t), loops[k])
        if self.count == "log":
            new = self._with_input(x, x_t)[:, None]
            inputs = torch.cat([inputs, new], 1) if state.position else new.clone()  # not a view of the output
        y, coda = self.coda.step(x, state.coda)
        return y, LoopedState(prelude, tuple(loops), coda, inputs)

    def _caught_up(self, batch_size: int, inputs: Tensor) -> LayersState:
        """Return the state of a repetition that no position so far has come to."""
        state: LayersState = self.looped.initial_state(batch_size)
        for x_t in inputs.unbind(1):
            _, state = self.looped.step(x_t, state)
        return state

    def _run(self, x: Tensor, lengths: Tensor | None, apply: Apply, counted: Tensor | None = None) -> Tensor:
        if lengths is not None:
            lengths = checked_lengths(lengths, x.shape[0], x.shape[1], x.device)
        embedded, x = x, apply(self.prelude, x, None)
        for active in self._active(x, lengths, counted):
            y = apply(self.looped, self._with_input(x, embedded), active)
            x = y if active is None else torch.where(active, y, x)
        return apply(self.coda, x, None)

    def _active(self, x: Tensor, lengths: Tensor | None, counted: Tensor | None) -> Iterator[Tensor | None]:
        """Yield for each repetition which positions take its result, (B or 1, T or 1, 1); None: all."""
        time = x.shape[1]
        most = time if counted is None or len(counted) == 0 else int(counted.max())
        counts = torch.tensor([self.repetitions(min(p, most)) for p in range(time + 1)], device=x.device)
        of_whole = counts[time if lengths is None else lengths.to(x.device)].view(-1, 1)
        chosen = counts[None, 1:] if self.causal else of_whole
        if counted is not None:
            chosen = torch.minimum(chosen, counts[counted.to(x.device)][:, None])  # R grows with the position
        for k in range(self.repetitions(most)):
            yield None if self.count != "log" else (chosen > k)[..., None]

    def _with_input(self, x: Tensor, embedded: Tensor) -> Tensor:
        return x + embedded if self.injected else x


def _active_rows(weights: Tensor, active: Tensor | None) -> Tensor:
    return weights if active is None else torch.where(active[:, None], weights, 0)


class PaddedLayers(nn.Module):
    """Layers that read P = number + factor · n blank positions after the n symbols (Merrill & Sabharwal 2025).

    All blanks have one learned embedding. The layers are causal, so that outputs at symbols do not depend on blanks,
    which serve the label of the whole string alone: see ``at_the_end``. P depends on each string alone, not on the
    others of its batch, and layers are repeated as often as for the string without blanks. Methods other than
    ``forward`` are those of the layers, without blanks.

    Cost: d_model parameters, and that of the layers at 1 + n + P positions.

    Args:
        layers: ``LoopedLayers``, causal; they know no positions but those in attention scores.
    """

    layers: Any  # LoopedLayers

    def __init__(self, layers: nn.Module, d_model: int, number: int, factor: int) -> None:
        super().__init__()
        self.layers, self.number, self.factor = layers, number, factor
        self.blank = nn.Parameter(torch.randn(d_model) / math.sqrt(d_model))

    def sizes(self, lengths: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """Return 1 + n + P for texts of 1 + n tokens, <bos> included."""
        return lengths + self.number + self.factor * (lengths - 1)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> Float[Tensor, "batch longer d_model"]:
        """Return the outputs at all positions of the longest string with its blanks; those at padding are undefined."""
        batch, time, d_model = x.shape
        lengths = torch.full((batch,), time, device=x.device) if lengths is None else lengths.to(x.device)
        sizes = self.sizes(lengths)
        longest = max(time, int(sizes.max())) if batch else time
        blanks = (self.blank * math.sqrt(d_model)).expand(batch, longest, d_model).to(x.dtype)
        is_symbol = torch.arange(longest, device=x.device) < lengths[:, None]
        filled = torch.where(is_symbol[..., None], nn.functional.pad(x, (0, 0, 0, longest - time)), blanks)
        y: Tensor = self.layers(filled, sizes, lengths)
        return y

    def at_the_end(
        self, label: Float[Tensor, "batch longer"], lengths: Int[Tensor, " batch"], time: int
    ) -> Float[Tensor, "batch time"]:
        """Return the outputs at symbols, that of the last symbol replaced by that of the last blank."""
        last = label.gather(1, (self.sizes(lengths) - 1)[:, None])
        return label[:, :time].scatter(1, (lengths - 1)[:, None], last)

    @property
    def blocks(self) -> Sequence[Any]:
        """The blocks of the layers."""
        blocks: Sequence[Any] = self.layers.blocks
        return blocks

    def hidden_states(self, x: Tensor, lengths: Tensor | None = None) -> Any:
        """Return the outputs at symbols."""
        return self.layers.hidden_states(x, lengths)

    def attend(self, x: Tensor, lengths: Tensor | None = None) -> Any:
        """Return the outputs at symbols, and the attention weights."""
        return self.layers.attend(x, lengths)

    def explain(self, x: Tensor, lengths: Tensor | None = None) -> Any:
        """Return the attention weights at symbols."""
        return self.layers.explain(x, lengths)

    def initial_state(self, batch_size: int) -> Any:
        """Return the state before the first position."""
        return self.layers.initial_state(batch_size)

    def step(self, x: Tensor, state: Any) -> Any:
        """Process one symbol."""
        return self.layers.step(x, state)
