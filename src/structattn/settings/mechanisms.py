"""One entry for each attention mechanism and stack: its settings, what builds it, where it can be used, its names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from structattn.settings.attention import CrossGaussian, DeltaProduct, Gaussian, Hard, NoAttention, Softmax
from structattn.settings.base import Settings, literal_of, registered_name
from structattn.settings.stacks import (
    Nondeterministic,
    RecurrentNondeterministic,
    RecurrentSuperposition,
    StackPointer,
    StackTrans,
    Stratified,
    Superposition,
)
from structattn.support.errors import UsageError
from structattn.support.imports import lazy_function
from structattn.support.plugins import Plugin, Registry, require_arguments


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
            model. Its settings are a ``TransformerSettings``: ``d_model``, ``num_heads``, ``bias``, ``dropout``,
            ``attention_dropout`` (None: ``dropout``), ``positions``, ``norm`` and so on.
        added_stack: whether ``layer`` can be added after the feed-forward sublayer, and to pretrained models.
        cross_attention: settings of the model, as above, settings -> layer; None if not available.
        recurrent_stack: settings -> ``RecurrentStack``; None if not available.
        sizes: the fields set by the numbers of the short form, in this order; also shown in descriptions.
        optional_size: the field set by one more number of the short form.
        drops_weights: settings -> whether ``self_attention`` and ``cross_attention`` drop attention weights.
        label: the name in descriptions of models; empty: the name in the settings.
        actions: the names of the actions in the records of ``explain``, whose ``details["actions"]`` have as many in
            their last axis; empty for mechanisms without actions.
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
    drops_weights: Callable[[Any], object] = lambda settings: True
    label: str = ""
    actions: tuple[str, ...] = ()
    caption: str = ""

    @property
    def name(self) -> str:
        """The value of ``attention`` in the settings."""
        return literal_of(self.settings, "attention")

    def takes_dropout(self, settings: Settings) -> bool:
        """Return whether attention weights may be dropped; ``layer`` does not know the model's rate."""
        return bool((self.self_attention or self.cross_attention) and self.drops_weights(settings))

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


def _never(settings: Settings) -> bool:
    return False


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
        drops_weights=_never,
    ),
    Mechanism(
        Gaussian,
        self_attention=_builder("gaussian"),
        cross_attention=Use(CrossGaussian, _builder("cross_gaussian")),
        optional_size="num_heads",
        drops_weights=lambda settings: settings.num_learned_heads,
    ),
    Mechanism(
        DeltaProduct,
        self_attention=_builder("delta_product"),
        optional_size="num_householder",
        drops_weights=_never,
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
        drops_weights=_never,
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
