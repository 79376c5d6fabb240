"""Write the pictures of the pages of mechanisms, docs/images/mechanisms/*.svg, computed by the operators.

    python tools/write_mechanism_images.py

They are drawn in greys and one colour of varying opacity on a transparent ground, to be read in light and in dark.
"""

import math
import re
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from torch import Tensor

from structattn.attention.positions import AlibiPositions, SinusoidalPositions
from structattn.operators import (
    gaussian_weights,
    nondeterministic_stack_posteriors,
    receptive_field,
    softmax_attention,
    stack_pointer_weights,
    stratified_stack_weights,
    superposition_stack_weights,
)
from structattn.operators.nondeterministic_stack.contents import nondeterministic_stack_contents
from structattn.operators.superposition_stack.reference import superposition_stack_contents

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "mechanisms"
GREY, BLUE = "#7a7a7a", "#2f7de1"
STYLE = {
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.titlecolor": GREY,
    "axes.titlesize": 10,
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "figure.constrained_layout.use": True,
    "svg.fonttype": "path",
    "svg.hashsalt": "structattn",  # the same file at each run
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}
BRACKETS = ("(", "[", "]", "(", ")", ")")
PROBABLE = 0.9  # of the action that fits a bracket


def cells(axes: Axes, values: Tensor) -> None:
    """Draw a matrix as squares whose opacity is the value, at most 1."""
    for row, line in enumerate(values.tolist()):
        for column, value in enumerate(line):
            if value > 0.01:
                square = Rectangle((column, row), 1, 1, facecolor=BLUE, alpha=min(value, 1.0), edgecolor="none")
                axes.add_patch(square)
    height, width = values.shape
    axes.add_patch(Rectangle((0, 0), width, height, fill=False, edgecolor=GREY, linewidth=0.8))


def heat_map(axes: Axes, weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str) -> None:
    """Draw attention weights with the names of queries and keys."""
    cells(axes, weights)
    axes.set(xlim=(-0.05, len(columns) + 0.05), ylim=(len(rows) + 0.05, -0.05), aspect="equal", title=title)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def steps(axes: Axes, values: Tensor, rows: Sequence[str], columns: Sequence[str], title: str) -> None:
    """Draw values by step: time runs to the right."""
    heat_map(axes, values, rows, columns, title)
    for row, line in enumerate(values.tolist()):
        for column, value in enumerate(line):
            if value >= 0.005:
                colour = "white" if value > 0.6 else GREY
                axes.text(column + 0.5, row + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)


def save(name: str, figure: Figure) -> None:
    """Write one picture, a group of elements a line."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    buffer = StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    (FOLDER / f"{name}.svg").write_text(re.sub(r"\n(?!\s*<g id)\s*", " ", buffer.getvalue()) + "\n")


def bracket_actions() -> Tensor:
    """Return the actions of a stack that most probably pushes at an opening bracket and pops at a closing one."""
    rest = (1 - PROBABLE) / 2
    return torch.tensor([[[PROBABLE, rest, rest] if each in "([" else [rest, rest, PROBABLE] for each in BRACKETS]])


def softmax() -> Figure:
    """Draw the causal weights of one head whose queries look for equal vectors."""
    words = ("the", "dog", "saw", "the", "cat")
    vectors = torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 0, 3])).float()[None, None]
    _, weights = softmax_attention(2 * vectors, vectors, vectors, causal=True, scale=1.0, return_weights=True)
    figure = Figure((3.4, 3.2))
    heat_map(figure.subplots(), weights[0, 0], words, words, "weights α, causal")
    return figure


def positions() -> Figure:
    """Draw similarities of sinusoids, and the biases of ALiBi."""
    length = 16
    vectors = SinusoidalPositions(64)(0, length)
    similarity = vectors @ vectors.T / 32  # 1 on the diagonal
    figure = Figure((7, 3))
    left, right = figure.subplots(1, 2)
    ticks = ["" if each % 4 else str(each) for each in range(length)]
    heat_map(left, similarity.clamp(min=0), ticks, ticks, "sinusoidal: dot product of positions")
    query = torch.zeros(1, 8, length, 4)
    bias = AlibiPositions(8)(query, query, 0)[2]
    assert bias is not None
    heat_map(right, bias.expand(1, 8, -1, -1)[0, 0].exp().tril(), ticks, ticks, "alibi: exp(bias) of one head of eight")
    return figure


def gaussian() -> Figure:
    """Draw the weights of two heads and of a head of cross-attention."""
    figure = Figure((7.6, 2.8))
    names = [str(each) for each in range(8)]
    own = gaussian_weights([-1.0, 1.0], 8).view(2, 8, 8)
    cross = gaussian_weights([0.0], 8, 5, ratio=0.6, floor=True).view(1, 8, 5)
    panels = ((own[0], names, "centre −1"), (own[1], names, "centre +1"), (cross[0], names[:5], "to a source, γ = 0.6"))
    for axes, (weights, columns, title) in zip(figure.subplots(1, 3), panels, strict=True):
        heat_map(axes, 2 * weights, names, columns, title)
    return figure


def hard() -> Figure:
    """Draw the probabilities of a head beside what it selects, and a relaxed sample."""
    torch.manual_seed(3)
    scores = torch.randn(1, 1, 6, 6)
    hidden = torch.ones(6, 6).triu(1).bool()
    masked = scores.masked_fill(hidden, -math.inf)[0, 0]
    noise = -torch.empty(6, 6).exponential_().log()
    panels = (
        (masked.softmax(-1), "softmax of the scores"),
        (((masked + noise) / 0.5).softmax(-1), "a sample in training, τ = 0.5"),
        (torch.nn.functional.one_hot(masked.argmax(-1), 6).float(), "the selection at test time"),
    )
    names = [str(each) for each in range(6)]
    figure = Figure((7.6, 2.8))
    for axes, (weights, title) in zip(figure.subplots(1, 3), panels, strict=True):
        heat_map(axes, weights, names, names, title)
    return figure


def two_streams() -> Figure:
    """Draw how receptive fields grow over three layers of one hard head each."""
    choices = [torch.tensor([[[0, 0, 0, 2, 2, 4, 4, 6]]]), torch.tensor([[[0, 1, 1, 1, 3, 3, 5, 5]]])]
    names = [str(each) for each in range(8)]
    figure = Figure((7.6, 2.8))
    fields = [torch.eye(8), *(receptive_field(choices[: number + 1])[0].float() for number in range(2))]
    for number, (axes, field) in enumerate(zip(figure.subplots(1, 3), fields, strict=True)):
        heat_map(axes, field, names, names, f"depends on, after {number} layers")
    return figure


def contents_figure(
    actions: Tensor, names: Sequence[str], found: Any, weights: Tensor, tokens: Sequence[str]
) -> Figure:
    """Draw actions, contents by depth, and reading weights over time."""
    figure = Figure((7.6, 3.6))
    grid = figure.add_gridspec(2, 2, width_ratios=[1.3, 1])
    steps(figure.add_subplot(grid[0, 0]), actions.T, names, tokens, "actions")
    depths = [f"depth {depth}" for depth in range(1, found.at_least.shape[-1] + 1)]
    steps(figure.add_subplot(grid[1, 0]), found.at_least[0].T, depths, tokens, "P(an item lies at this depth)")
    keys = tokens if weights.shape[1] == len(tokens) else ("⊥", *tokens)
    heat_map(figure.add_subplot(grid[:, 1]), weights, tokens, keys, "weights of the reading")
    return figure


def superposition() -> Figure:
    """Draw a superposition stack on a string of brackets."""
    actions = bracket_actions()
    found = superposition_stack_contents(actions, 3)
    weights = superposition_stack_weights(actions)[0]
    return contents_figure(actions[0], ("push", "no-op", "pop"), found, weights, BRACKETS)


def stack_pointer() -> Figure:
    """Draw stack pointers on the same string."""
    actions = bracket_actions()
    found = superposition_stack_contents(actions, 3)
    return contents_figure(actions[0], ("push", "no-op", "pop"), found, stack_pointer_weights(actions)[0], BRACKETS)


def reversal_automaton(bits: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-weights of an automaton for w followed by w reversed: it pushes, and pops once it guesses the middle.

    State 0 pushes, state 1 pops the symbol that it reads; symbol 0 is the bottom, 1 and 2 are the bits.
    """
    shape = (1, len(bits), 2, 3, 2, 3)
    push, pop = torch.full(shape, -math.inf), torch.full(shape[:-1], -math.inf)
    for time, bit in enumerate(bits):
        push[0, time, 0, :, 0, bit + 1] = 0
        pop[0, time, :, bit + 1, 1] = 0
    return push, torch.full(shape, -math.inf), pop


def nondeterministic() -> Figure:
    """Draw the automaton for w followed by w reversed: what it knows in each step, and in the end."""
    bits = (0, 1, 1, 0, 0, 1, 1, 0)
    tokens = [str(bit) for bit in bits]
    push, replace, pop = reversal_automaton(bits)
    found = nondeterministic_stack_contents(push, replace, pop, 5)
    ended = end_on_the_bottom(push, replace, pop)
    posteriors = nondeterministic_stack_posteriors(*ended)
    actions = torch.stack([each[0].flatten(1).sum(1) for each in (posteriors[0], posteriors[2])])[:, : len(bits)]
    figure = Figure((7.6, 4.2))
    left, right = figure.subplots(2, 1, height_ratios=[2, 5])
    steps(left, actions, ("push", "pop"), tokens, "posteriors of the actions, given the whole string")
    depths = [f"depth {depth}" for depth in range(1, 6)]
    steps(right, found.at_least[0].T.float(), depths, tokens, "P(an item lies at this depth), given the string so far")
    return figure


def end_on_the_bottom(push: Tensor, replace: Tensor, pop: Tensor) -> tuple[Tensor, ...]:
    """Append a step in which only runs with the bottom on top and state 1 go on."""
    last = torch.full_like(replace[:, :1], -math.inf)
    last[..., 1, 0, 1, 0] = 0
    nothing = torch.full_like(last, -math.inf)
    return tuple(torch.cat(pair, 1) for pair in ((push, nothing), (replace, last), (pop, nothing[..., 0])))


def stratified() -> Figure:
    """Draw the strata after each step, and the reading weights."""
    pushed, popped = (0.8, 0.5, 0.9, 0.2, 0.0), (0.0, 0.1, 0.0, 0.6, 0.9)
    actions = torch.tensor([list(zip(pushed, popped, strict=True))])
    names = [f"v{each}" for each in range(1, 6)]
    figure = Figure((7.6, 3))
    left, right = figure.subplots(1, 2, width_ratios=[1.4, 1])
    strengths: list[float] = []
    for time, (push, pop) in enumerate(zip(pushed, popped, strict=True)):
        left_to_pop = pop
        for index in reversed(range(len(strengths))):
            removed = min(strengths[index], left_to_pop)
            strengths[index], left_to_pop = strengths[index] - removed, left_to_pop - removed
        strengths.append(push)
        draw_strata(left, time, strengths)
    left.set(xlim=(-0.6, 4.6), ylim=(0, 2.4), ylabel="strength", title="strata after each step")
    left.set_xticks(range(5), [f"push {push}\npop {pop}" for push, pop in zip(pushed, popped, strict=True)], fontsize=7)
    left.spines[["top", "right"]].set_visible(False)
    heat_map(
        right,
        stratified_stack_weights(actions)[0],
        [f"step {each}" for each in range(1, 6)],
        names,
        "weights of the reading",
    )
    return figure


def draw_strata(axes: Axes, time: int, strengths: Sequence[float]) -> None:
    """Draw one stack; what lies within one unit of the top is read and filled."""
    total, below = sum(strengths), 0.0
    for index, strength in enumerate(strengths):
        read = max(0.0, min(strength, below + strength - (total - 1)))
        axes.add_patch(Rectangle((time - 0.35, below + strength - read), 0.7, read, facecolor=BLUE, alpha=0.45))
        axes.add_patch(Rectangle((time - 0.35, below), 0.7, strength, fill=False, edgecolor=GREY, linewidth=0.8))
        if strength > 0.1:
            axes.text(time, below + strength / 2, f"v{index + 1}", ha="center", va="center", fontsize=8)
        below += strength


def stack_rnn() -> Figure:
    """Draw how controller and stack depend on each other over two steps."""
    figure = Figure((7.6, 2.6))
    axes = figure.subplots()
    axes.set(xlim=(0, 10), ylim=(0, 4))
    axes.axis("off")
    for time, left in ((1, 1.4), (2, 5.6)):
        box(axes, left, 2.4, f"LSTM or RNN: h{time}")
        box(axes, left, 0.4, f"stack, reading r{time}")
        arrow(axes, (left + 0.8, 2.4), (left + 0.8, 1.4), f"a{time}, v{time}")
        arrow(axes, (left - 0.2 if time > 1 else 0.2, 2.9), (left, 2.9), f"x{time}" if time == 1 else "")
        arrow(axes, (left + 2.4, 0.9), (left + 4.2, 2.55), f"r{time}")
        arrow(axes, (left + 2.4, 2.9), (left + 4.2, 2.9), f"h{time}")
        arrow(axes, (left + 2.4, 0.7), (left + 4.2, 0.7), "")
    return figure


def box(axes: Axes, left: float, bottom: float, text: str) -> None:
    """Draw a box with text."""
    shape = FancyBboxPatch((left, bottom), 2.4, 1, boxstyle="round,pad=0,rounding_size=.15", fill=False, edgecolor=GREY)
    axes.add_patch(shape)
    axes.text(left + 1.2, bottom + 0.5, text, ha="center", va="center")


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str) -> None:
    """Draw an arrow with text beside its middle."""
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=BLUE, shrinkA=0, shrinkB=0))
    axes.text((start[0] + end[0]) / 2 + 0.1, (start[1] + end[1]) / 2 + 0.12, text)


PICTURES: tuple[Callable[[], Figure], ...] = (
    *(softmax, positions, gaussian, hard, two_streams, superposition, nondeterministic),
    *(stratified, stack_pointer, stack_rnn),
)


def main() -> None:
    """Write all pictures."""
    with mpl.rc_context(STYLE):
        for picture in PICTURES:
            save(picture.__name__, picture())


if __name__ == "__main__":
    main()
