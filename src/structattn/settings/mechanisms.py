"""Settings of attention mechanisms and stacks, and one entry for each with where it can be used and its names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, field_validator, model_validator

from structattn.settings.base import Positive, Settings, Size, literal_of, registered_name
from structattn.support.errors import UsageError
from structattn.support.imports import lazy_function
from structattn.support.plugins import Plugin, Registry, require_arguments

Kernel = Literal["full", "window", "index"]


class MultiHead(Settings):
    """Base class of mechanisms with several heads."""

    num_heads: Size | None = Field(default=None, description="number of heads; null: that of the model")


class Softmax(MultiHead):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017)."""

    attention: Literal["softmax"] = "softmax"


class GumbelSoftmax(Settings):
    """Base class of hard attention that is trained with Gumbel-softmax."""

    temperature: NonNegativeFloat = Field(default=1.0, description="temperature τ of the Gumbel-softmax in training")
    straight_through: bool = Field(
        default=False,
        description="straight-through estimator: one-hot weights in the forward pass of training, the gradient of the "
        "relaxed weights in the backward pass",
    )
    noise: bool = Field(
        default=True, description="Gumbel noise in training; false: none, so that training is deterministic (ours)"
    )


class Hard(GumbelSoftmax, MultiHead):
    """Hard attention: each head selects one position; trained with Gumbel-softmax (Discrete Transformer)."""

    attention: Literal["hard"]


class Gaussian(MultiHead):
    """Hard-coded Gaussian attention around fixed offsets (You et al. 2020)."""

    attention: Literal["gaussian"]
    offsets: tuple[float, ...] | None = Field(
        default=None,
        min_length=1,
        description="centres relative to the query's position, repeated for all heads; null: -1, 0 in causal and -1, 1 "
        "in bidirectional self-attention, -1, 0, 1 in cross-attention",
    )
    num_learned_heads: NonNegativeInt = Field(
        default=0, description="how many of the heads use learned softmax attention instead"
    )
    kernel: Kernel = Field(
        default="full",
        description="full: all positions; window: the `window` positions around the centre; index: the position at the "
        "centre alone, with weight 1",
    )
    window: Size = Field(default=3, description="number of positions of the window kernel, odd")
    sigma: PositiveFloat = Field(default=1.0, description="standard deviation, in positions")

    @field_validator("window")
    @classmethod
    def _check_window(cls, window: int) -> int:
        if window % 2 == 0:
            raise ValueError("expected an odd number of positions")
        return window


class CrossGaussian(Gaussian):
    """Hard-coded Gaussian attention around the target position times the length ratio (You et al. 2020)."""

    length_ratio: PositiveFloat | None = Field(
        default=None,
        description="γ, mean source length / mean target length; null: computed from the training pairs, in tokens",
    )
    floor: bool = Field(
        default=True, description="round centres down, as in the paper; the authors' code does not round"
    )


class DeltaProduct(MultiHead):
    """Gated DeltaProduct, a linear recurrence (Siems et al. 2025)."""

    attention: Literal["delta_product"]
    num_householder: int = Field(
        default=2, ge=1, le=64, description="m, number of Householder steps per token; 1: gated DeltaNet"
    )
    key_size: Size | None = Field(default=None, description="size of a head's keys; null: d_model / num_heads")
    value_size: Size | None = Field(default=None, description="size of a head's values; null: d_model / num_heads")
    gate: bool = Field(default=True, description="whether the state decays; false: it can be kept for ever")
    negative_eigenvalues: bool = Field(
        default=True, description="strengths in (0, 2), which can reflect; false: in (0, 1), which can only erase"
    )
    convolution_size: int = Field(
        default=4, ge=0, le=64, description="positions that the convolution of queries, keys and values sees; 0: none"
    )


def _require_equal_parts(size: int, num_heads: int) -> None:
    if size % num_heads:
        raise ValueError(f"stack_embedding_size {size} is not divisible by num_heads {num_heads}")


class Superposition(Settings):
    """Superposition stack attention (DuSell & Chiang 2024, section 5)."""

    attention: Literal["superposition"]
    stack_embedding_size: Size = Field(description="m, the size of the stack vectors")
    pushed_activation: Literal["sigmoid", "none"] = Field(
        default="sigmoid", description="activation of pushed vectors; sigmoid in the paper, none in the authors' code"
    )
    num_heads: Size = Field(default=1, description="number of stacks, each with vectors of size m / num_heads")

    @model_validator(mode="after")
    def _check_num_heads(self) -> Self:
        _require_equal_parts(self.stack_embedding_size, self.num_heads)
        return self


class RecurrentSuperposition(Superposition):
    """Superposition stack of a recurrent network (Joulin & Mikolov 2015; DuSell & Chiang 2024, section 6)."""

    num_heads: Literal[1] = Field(default=1, description="1; several stacks are for transformers")
    depth: Positive | None = Field(
        default=None,
        description="number of vectors that the stack holds, those below are lost; null: no limit, 100 in the code of "
        "Li et al. (2024)",
    )


class Nondeterministic(Settings):
    """Nondeterministic stack attention (DuSell & Chiang 2024, section 5)."""

    attention: Literal["nondeterministic"]
    num_states: int = Field(ge=1, le=16, description="|Q|, number of states of the pushdown automaton")
    stack_alphabet_size: int = Field(
        ge=1, le=16, description="|Γ|, number of stack symbols, including the bottom symbol"
    )
    stack_embedding_size: Size = Field(description="m, the size of the stack vectors")
    pushed_activation: Literal["sigmoid", "exp"] = Field(
        default="sigmoid", description="activation of pushed vectors; sigmoid in the paper, exp in the authors' code"
    )
    window: Positive | None = Field(
        default=None, description="maximum number of steps between the push and the pop of an item; null: no limit"
    )
    pop_offset: float = Field(
        default=0.0,
        ge=-100,
        le=100,
        description="number added to the log-weights of pops, 0 in the paper; with 2, more seeds learn to use "
        "the stack on w#w^R",
    )


class RecurrentNondeterministic(Nondeterministic):
    """Nondeterministic stack of a recurrent network (DuSell & Chiang 2023), whose actions have biases."""

    pop_offset: float = Field(default=0.0, description="0; for transformers only")

    @field_validator("pop_offset")
    @classmethod
    def _check_pop_offset(cls, pop_offset: float) -> float:
        if pop_offset != 0:
            raise ValueError("pop_offset is for transformers; actions of a recurrent network have biases, expected 0")
        return pop_offset


class Stratified(Settings):
    """Stratified stack of a recurrent network (Grefenstette et al. 2015)."""

    attention: Literal["stratified"]
    stack_embedding_size: Size = Field(description="m, the size of the stack vectors")
    pushed_activation: Literal["tanh", "sigmoid", "none"] = Field(
        default="tanh", description="activation of pushed vectors; tanh in the paper"
    )


class StackPointer(Settings):
    """Stack attention by pointers to positions (Li et al. 2024)."""

    attention: Literal["stack_pointer"]
    bottom: Literal["first_token", "learned"] = Field(
        default="first_token",
        description="value of the empty stack: the first position, in language models and transductions <bos>, as in "
        "the paper (first_token); or a learned vector before it, which is not in the paper (learned)",
    )
    num_heads: Size = Field(
        default=1, description="number of stacks, each for d_model / num_heads numbers of the values"
    )


class StackTrans(Settings):
    """Small bounded stacks that are read over all cells (StackTrans, 2025)."""

    attention: Literal["stack_trans"] = "stack_trans"
    stack_embedding_size: Size = Field(default=64, description="size of the vectors of all stacks together")
    num_heads: Size = Field(default=4, description="number of stacks")
    depth: Size = Field(default=24, description="number of cells of a stack; items below the last one are lost")
    form: Literal["released", "paper"] = Field(
        default="released",
        description="as the authors' package, with a null cell and actions of the input; or as the paper, with actions "
        "of the pushed vector and the mask as a factor of the score",
    )
    read: Literal["after", "before"] = Field(
        default="after", description="read after the action of the same position; before: as the paper's indices say"
    )

    @model_validator(mode="after")
    def _check_num_heads(self) -> Self:
        _require_equal_parts(self.stack_embedding_size, self.num_heads)
        return self


class NoAttention(Settings):
    """No sublayer of this kind, and no residual connection and layer norm for it."""

    attention: Literal["none"]


@dataclass(frozen=True)
class Use:
    """A use of a mechanism that has settings and a builder of its own.

    Args:
        settings: the settings class.
        build: makes the layer, or the stack of a recurrent network.
    """

    settings: type[Settings]
    build: Callable[..., Any]


@dataclass(frozen=True)
class Mechanism:
    """Entry of an attention mechanism or stack: its settings, what builds it, where it can be used, and its names.

    Lists of layers, the short form, tables, records and figures are derived from these entries.

    Args:
        settings: the settings class; its field ``attention`` is a literal, the name.
        layer: d_model, settings -> layer, where nothing else of the model matters.
        self_attention: settings of the model, settings, whether it is causal -> layer; for those that need more of the
            model, such as the number of heads.
        added_stack: whether ``layer`` can be added after the feed-forward sublayer, and to pretrained models.
        cross_attention: settings of the model, settings -> layer; None if not available.
        recurrent_stack: settings -> ``RecurrentStack``; None if not available.
        sizes: the fields set by the numbers of the short form, in this order; also shown in descriptions.
        optional_size: the field set by one more number of the short form.
        label: the name in descriptions of models; empty: the name in the settings.
        actions: the names of the actions in the records of ``explain``; empty for mechanisms without actions.
        caption: the caption of figures of these records.
    """

    settings: type[Settings]
    layer: Callable[[int, Any], Any] | None = None
    self_attention: Callable[[Any, Any, bool], Any] | None = None
    added_stack: bool = False
    cross_attention: Use | None = None
    recurrent_stack: Use | None = None
    sizes: tuple[str, ...] = ()
    optional_size: str | None = None
    label: str = ""
    actions: tuple[str, ...] = ()
    caption: str = ""

    @property
    def name(self) -> str:
        """The value of ``attention`` in the settings."""
        return literal_of(self.settings, "attention")

    def register(self, plugin: Plugin) -> None:
        """Add this to the mechanisms.

        Raises:
            UsageError: the name is taken, a field is missing in the settings class, or a builder takes other arguments.
        """
        name = registered_name(self.settings, "attention")
        for use in (self.cross_attention, self.recurrent_stack):
            if use is not None and registered_name(use.settings, "attention") != name:
                raise UsageError(f"mechanism {name!r}: {use.settings.__name__} has another name; expected the same")
        for size in (*self.sizes, self.optional_size):
            if size and size not in self.settings.model_fields:
                raise UsageError(f"mechanism {name!r}: {self.settings.__name__} has no field {size!r}, a size")
        if self.layer is None and (self.added_stack or not any(self._builders())):
            raise UsageError(f"mechanism {name!r}: has no builder; expected layer, a function of (d_model, settings)")
        for (what, *arguments), builder in zip(_ARGUMENTS, self._builders(), strict=True):
            require_arguments(f"mechanism {name!r}: {what}", builder, *arguments)
        MECHANISMS.add(name, self, plugin)

    def _builders(self) -> tuple[Callable[..., Any] | None, ...]:
        uses = self.cross_attention, self.recurrent_stack
        return (self.layer, self.self_attention, *(None if use is None else use.build for use in uses))


_ARGUMENTS = (
    ("layer", "d_model", "settings"),
    ("self_attention", "model", "settings", "causal"),
    ("cross_attention", "model", "settings"),
    ("recurrent_stack", "settings"),
)


def _builder(name: str) -> Callable[..., Any]:
    return lazy_function("structattn.models.builders.mechanisms", name)


def _recurrent(settings: type[Settings], name: str) -> Use:
    return Use(settings, lazy_function("structattn.models.builders.recurrent", name))


_ENTRIES = (
    Mechanism(
        Softmax,
        self_attention=_builder("softmax"),
        cross_attention=Use(Softmax, _builder("cross_softmax")),
        optional_size="num_heads",
    ),
    Mechanism(
        Hard,
        self_attention=_builder("hard"),
        cross_attention=Use(Hard, _builder("cross_hard")),
        optional_size="num_heads",
    ),
    Mechanism(
        Gaussian,
        self_attention=_builder("gaussian"),
        cross_attention=Use(CrossGaussian, _builder("cross_gaussian")),
        optional_size="num_heads",
    ),
    Mechanism(
        DeltaProduct,
        self_attention=_builder("delta_product"),
        optional_size="num_householder",
        label="DeltaProduct",
    ),
    Mechanism(
        Superposition,
        layer=_builder("superposition"),
        added_stack=True,
        recurrent_stack=_recurrent(RecurrentSuperposition, "superposition"),
        sizes=("stack_embedding_size",),
        actions=("push", "no-op", "pop"),
        caption="Superposition stack. Top: probability of each action at every position. Bottom: weights of the "
        "vectors pushed at other positions in each position's stack reading.",
    ),
    Mechanism(
        Nondeterministic,
        layer=_builder("nondeterministic"),
        added_stack=True,
        recurrent_stack=_recurrent(RecurrentNondeterministic, "nondeterministic"),
        sizes=("num_states", "stack_alphabet_size", "stack_embedding_size"),
        optional_size="window",
        actions=("push", "replace", "pop"),
        caption="Nondeterministic stack. Top: posterior probability of each action given the input up to each "
        "position; dots mark the most probable run of the whole input. Bottom: weights of the vectors pushed at other "
        "positions in each position's stack reading.",
    ),
    Mechanism(
        Stratified,
        recurrent_stack=_recurrent(Stratified, "stratified"),
        sizes=("stack_embedding_size",),
        actions=("push", "pop"),
        caption="Stratified stack. Top: strength of each push and pop. Bottom: how much of each position's vector lies "
        "within one unit of the top.",
    ),
    Mechanism(
        StackPointer,
        layer=_builder("stack_pointer"),
        added_stack=True,
        label="stack pointer",
        actions=("push", "no-op", "pop"),
        caption="Stack pointer. Top: probability of each action at every position. Bottom: probability that each "
        "position is on top of the stack.",
    ),
    Mechanism(
        StackTrans,
        layer=_builder("stack_trans"),
        added_stack=True,
        optional_size="stack_embedding_size",
        label="StackTrans",
        actions=("push", "no-op", "pop"),
        caption="StackTrans. Top: probability of each action at every position. Bottom: weights of the null cell and "
        "of the vectors pushed at other positions in each position's reading of all cells.",
    ),
    Mechanism(
        NoAttention,
        layer=lambda d_model, settings: None,
        cross_attention=Use(NoAttention, lambda model, settings: None),
        label="no attention",
    ),
)
MECHANISMS: Registry[Mechanism] = Registry("mechanism", {entry.name: entry for entry in _ENTRIES})


def mechanism_of(settings: Settings) -> Mechanism:
    """Return the entry of the mechanism that has these settings."""
    return MECHANISMS[getattr(settings, "attention")]  # noqa: B009 - registered classes have it


def describe_mechanism(settings: Settings) -> str:
    """Return a short description: ``nondeterministic 2-3-5``, ``softmax-8`` or ``gaussian (-1, 1)``."""
    entry = mechanism_of(settings)
    text = entry.label or entry.name
    if entry.sizes:
        text += " " + "-".join(str(getattr(settings, field)) for field in entry.sizes)
    if entry.optional_size is not None:
        size, default = getattr(settings, entry.optional_size), type(settings).model_fields[entry.optional_size].default
        text += "" if size == default else f"-{size:.15g}"
    if isinstance(settings, Gaussian) and settings.offsets is not None:
        text += f" ({', '.join(f'{offset:g}' for offset in settings.offsets)})"
    if isinstance(settings, RecurrentSuperposition) and settings.depth is not None:
        text += f" of depth {settings.depth}"
    if isinstance(settings, Superposition | StackPointer) and settings.num_heads > 1:
        text += f" with {settings.num_heads} heads"
    if isinstance(settings, StackPointer) and settings.bottom == "learned":
        text += " with a learned bottom"
    return text
