"""Attention mechanisms and stacks: their settings, and one entry for each with its short form and its labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from pydantic import Field, field_validator

from structattn.settings.base import Settings

Kernel = Literal["full", "window", "index"]


class WithHeads(Settings):
    """What every mechanism with heads has."""

    num_heads: int | None = Field(default=None, ge=1, description="heads; the model's number where it is left out")


class Softmax(WithHeads):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017)."""

    attention: Literal["softmax"] = "softmax"


class Hard(WithHeads):
    """Hard attention, trained as Gumbel-softmax (Discrete Transformer)."""

    attention: Literal["hard"]
    temperature: float = Field(default=1.0, ge=0, description="τ of the Gumbel-softmax in training")
    straight_through: bool = Field(
        default=False, description="read one position in training, too, with the gradient of the relaxed weights"
    )


class Gaussian(WithHeads):
    """Hard-coded Gaussian attention around fixed offsets (You et al. 2020)."""

    attention: Literal["gaussian"]
    offsets: tuple[float, ...] | None = Field(
        default=None,
        min_length=1,
        description="centres relative to the position, repeated until every head has one; left out: -1, 1 where both "
        "sides are seen, -1, 0 where only the left one is, -1, 0, 1 across",
    )
    num_learned_heads: int = Field(
        default=0, ge=0, description="heads, of all, that are learned softmax attention instead"
    )
    kernel: Kernel = Field(
        default="full", description="full: all positions; window: a few around the centre; index: the centre, weight 1"
    )
    window: int = Field(default=3, ge=1, description="how many positions the kernel of that name keeps, an odd number")
    sigma: float = Field(default=1.0, gt=0, description="standard deviation, in positions")

    @field_validator("window")
    @classmethod
    def _window_is_odd(cls, window: int) -> int:
        if window % 2 == 0:
            raise ValueError("expected an odd number of positions")
        return window


class CrossGaussian(Gaussian):
    """Hard-coded Gaussian attention around the place that the length ratio tells (You et al. 2020)."""

    length_ratio: float | None = Field(
        default=None,
        gt=0,
        description="γ, average source length / average target length; None: that of the training pairs, in tokens",
    )
    floor: bool = Field(default=True, description="round centres down; the paper does, its code does not")


class Superposition(Settings):
    """Superposition stack attention (DuSell & Chiang 2024, section 5)."""

    attention: Literal["superposition"]
    stack_embedding_size: int = Field(ge=1, description="m, the size of a stack vector")
    pushed_activation: Literal["sigmoid", "none"] = Field(
        default="sigmoid", description="what is applied to a pushed vector; the paper: sigmoid, its code: none"
    )


class Nondeterministic(Settings):
    """Nondeterministic stack attention (DuSell & Chiang 2024, section 5)."""

    attention: Literal["nondeterministic"]
    num_states: int = Field(ge=1, le=16, description="|Q|")
    stack_alphabet_size: int = Field(ge=1, le=16, description="|Γ|, the bottom symbol included")
    stack_embedding_size: int = Field(ge=1, description="m, the size of a stack vector")
    pushed_activation: Literal["sigmoid", "exp"] = Field(
        default="sigmoid", description="what is applied to a pushed vector; the paper: sigmoid, its code: exp"
    )
    window: int | None = Field(
        default=None, ge=1, description="steps after its push for which an item can be popped; null: for ever"
    )


class Stratified(Settings):
    """The stratified stack, for recurrent networks (Grefenstette et al. 2015)."""

    attention: Literal["stratified"]
    stack_embedding_size: int = Field(ge=1, description="m, the size of a stack vector")
    pushed_activation: Literal["tanh", "sigmoid", "none"] = Field(
        default="tanh", description="what is applied to a pushed vector; the paper: tanh"
    )


class StackPointer(Settings):
    """Stack attention by pointers to positions (Li et al. 2024)."""

    attention: Literal["stack_pointer"]
    bottom: Literal["bos", "first_token"] = Field(
        default="bos",
        description="what an empty stack reads: a vector that is learnt, or the first token as in the code",
    )


class Nothing(Settings):
    """No such sublayer, nor its residual connection and norm."""

    attention: Literal["none"]


@dataclass(frozen=True)
class Mechanism:
    """What the short form, tables, records and figures need to know of a mechanism.

    The builder of its layer is in ``building/builders.py``, under the same settings class.

    Args:
        settings: the settings class.
        sizes: fields given by the numbers of the short form, in this order; descriptions show them.
        optional_size: field that one further number of the short form sets.
        label: name in descriptions of models; the name in the settings where it is empty.
        actions: names of the actions in the records of ``explain``; empty for mechanisms without actions.
        caption: text of the figure that shows such a record.
    """

    settings: type[Settings]
    sizes: tuple[str, ...] = ()
    optional_size: str | None = None
    label: str = ""
    actions: tuple[str, ...] = ()
    caption: str = ""

    @property
    def name(self) -> str:
        """The value of ``attention`` in the settings."""
        return str(get_args(self.settings.model_fields["attention"].annotation)[0])


_ENTRIES = (
    Mechanism(Softmax, optional_size="num_heads"),
    Mechanism(Hard, optional_size="num_heads"),
    Mechanism(Gaussian, optional_size="num_heads"),
    Mechanism(
        Superposition,
        sizes=("stack_embedding_size",),
        actions=("push", "no-op", "pop"),
        caption="Superposition stack: above, the probability of each action at every position; below, the weights "
        "with which each position's reading mixes the vectors pushed at other positions.",
    ),
    Mechanism(
        Nondeterministic,
        sizes=("num_states", "stack_alphabet_size", "stack_embedding_size"),
        optional_size="window",
        actions=("push", "replace", "pop"),
        caption="Nondeterministic stack: above, the posterior probability of each action at every position, dots for "
        "the most probable run; below, the weights with which each position's reading mixes the vectors pushed at "
        "other positions.",
    ),
    Mechanism(
        Stratified,
        sizes=("stack_embedding_size",),
        actions=("push", "pop"),
        caption="Stratified stack: above, the strength of each push and pop; below, how much of each position's "
        "vector is within one unit from the top.",
    ),
    Mechanism(
        StackPointer,
        label="stack pointer",
        actions=("push", "no-op", "pop"),
        caption="Stack pointer: above, the probability of each action at every position; below, the probability that "
        "each position is on top of the stack.",
    ),
    Mechanism(Nothing, label="no attention"),
)
MECHANISMS: Mapping[str, Mechanism] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def describe_mechanism(settings: Settings) -> str:
    """Return a mechanism in a few words: ``nondeterministic 2-3-5``, ``softmax-8``, ``gaussian (-1, 1)``."""
    entry = next(entry for entry in MECHANISMS.values() if isinstance(settings, entry.settings))
    text = entry.label or entry.name
    if entry.sizes:
        text += " " + "-".join(str(getattr(settings, field)) for field in entry.sizes)
    if isinstance(settings, WithHeads) and settings.num_heads is not None:
        text += f"-{settings.num_heads}"
    if isinstance(settings, Gaussian) and settings.offsets is not None:
        text += f" ({', '.join(f'{offset:g}' for offset in settings.offsets)})"
    return text
