"""Models of transformers with stacks: a class for each of theirs, and the insertion into existing models."""

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import transformers
from torch.nn import Parameter
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.utils import output_capturing

from structattn.interop.huggingface.configuration import stacked_config
from structattn.interop.huggingface.remote_code import SavedWithCode, auto_map_of, named_as_exported, register_classes
from structattn.interop.huggingface.stack_blocks import StackSublayer, insert_stacks
from structattn.models.initialization import initialize_foreign
from structattn.settings.huggingface import StackLike, stack_from

_AUTO_MODELS: Final = (
    transformers.AutoModel,
    transformers.AutoModelForCausalLM,
    transformers.AutoModelForMaskedLM,
    transformers.AutoModelForSequenceClassification,
    transformers.AutoModelForTokenClassification,
    transformers.AutoModelForQuestionAnswering,
)


class WithStacks(SavedWithCode, PreTrainedModel):
    """A model with the stacks of its configuration: h <- h + S(h) after each block that has one.

    Li et al. (2024) insert a stack pointer into every layer. Stacks are causal, even in an encoder. They skip the
    padding of ``attention_mask``, left or right. The cache holds their states: generation takes one step per token.
    """

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        if self.base_model is self or not isinstance(self.base_model, WithStacks):  # else built by an AutoModel
            insert_stacks(self, stack_from(config.stack))
        _prepare(self)
        self.post_init()

    def initialize_weights(self) -> None:
        """As in transformers, after what the constructors of stacks set, and before what plugins want to set last."""
        stacks = [module for module in self.modules() if isinstance(module, StackSublayer)]
        new = [each for each in stacks if not any(map(_is_loaded, each.parameters()))]
        for sublayer in stacks:
            if not all(map(_is_loaded, sublayer.parameters())):  # construction draws random numbers
                sublayer.initialize()
        super().initialize_weights()
        for sublayer in new:
            initialize_foreign(sublayer)


def _is_loaded(parameter: Parameter) -> bool:
    return getattr(parameter, "_is_hf_initialized", False)


def _prepare(model: Any) -> None:
    """Let the folders of a model load without an import of this package, and give it the loss of its kind."""
    model.config.auto_map = auto_map_of(model, stacked_classes(type(model).plain_class.config_class))
    if type(model).plain_class.__name__.endswith("LMHeadModel"):
        model.loss_type = "ForCausalLM"  # else the Trainer counts first tokens, which nothing predicts


@cache
def _stacked(plain: Any) -> type[Any]:
    class Stacked(WithStacks, plain):
        config_class = stacked_config(plain.config_class)
        plain_class = plain

    return named_as_exported(Stacked, plain)


@cache
def stacked_classes(plain_config: Any) -> dict[Any, tuple[type[Any], ...]]:
    """Return AutoModel -> the class with stacks that it builds, of a family; all are registered.

    Args:
        plain_config: the class of configurations of the family without stacks.
    """
    found = {auto: auto._model_mapping.get(plain_config, None) for auto in _AUTO_MODELS}
    plain_classes = {auto: plain for auto, plain in found.items() if isinstance(plain, type)}
    classes: dict[Any, tuple[type[Any], ...]] = {auto: (_stacked(plain),) for auto, plain in plain_classes.items()}
    register_classes(classes)
    _share_conversions(plain_config.model_type, stacked_config(plain_config).model_type)
    for plain in plain_classes.values():
        _share_conversions(plain.__name__, _stacked(plain).__name__)
    return classes


def _share_conversions(plain: str, stacked: str) -> None:
    """Let names and layouts of stored weights, by model type or class, be converted as those of the plain model are."""
    conversions = get_checkpoint_conversion_mapping(plain)
    if conversions is not None:
        register_checkpoint_conversion_mapping(stacked, conversions, overwrite=True)


def stacked_class(plain: Any) -> type[Any]:
    """Return the class of a model with stacks: ``StackLlamaForCausalLM`` for ``LlamaForCausalLM``."""
    stacked_classes(plain.config_class)
    return _stacked(plain)


def class_with_stacks(name: str) -> type[Any]:
    """Return the configuration or model ``StackX`` of this package, for an ``X`` of transformers.

    Raises:
        AttributeError: there is none.
    """
    found = getattr(transformers, name.removeprefix("Stack"), None) if name.startswith("Stack") else None
    plain: Any = found if isinstance(found, type) else object
    if issubclass(plain, transformers.PreTrainedConfig):
        stacked_classes(plain)
        return stacked_config(plain)
    if issubclass(plain, PreTrainedModel) and plain.config_class is not None:
        return stacked_class(plain)
    raise AttributeError(f"module {__package__!r} has no attribute {name!r}")


def add_stack_attention(
    model: PreTrainedModel,
    stack: StackLike = "stack_pointer",
    *,
    layers: Sequence[int] | None = None,
    gate: bool | None = None,
) -> Any:
    """Return a copy of a model with stacks inserted, with the same device, dtype and mode.

    Stacks are added after blocks, h <- h + S(h); they replace nothing: the blocks keep their attention, its weights and
    its keys and values in the cache, from which transformers takes the number of positions.

    Parameters of the stacks are initialised by the model's own rule, those of a plugin as in the models of this
    package: what its module owns itself stays, and ``initialize_own`` is called last. With ``gate=True`` the new
    model's outputs equal those of ``model`` exactly until it is trained.

    Args:
        model: of any class with one list of blocks, such as Llama, GPT-NeoX or BERT, without stacks; not modified.
        stack: which mechanism: ``PointerStack``, ``SuperpositionStack`` or ``NondeterministicStack``; the settings of
            any other that can be added, such as one of a plugin; a mapping with the same keys; or a short form, as
            ``"superposition-16"`` or ``"stack_trans"``. By default a stack pointer, as in the paper.
        layers: indices of the blocks that get a stack, negative from the end; None: those that ``stack`` says, by
            default all.
        gate: whether a learned factor g multiplies what the stack adds, 0 at first; None: as ``stack`` says, by default
            not.

    Raises:
        ValueError: ``model`` has another structure, or stacks already, or the settings are invalid.
    """
    if stack is None:
        raise ValueError("stack is None; expected settings, a mapping or a short form, such as 'stack_pointer'")
    if not isinstance(model, PreTrainedModel) or isinstance(model, WithStacks):
        raise ValueError(f"stacks cannot be inserted into a {type(model).__name__}; expected a model without stacks")
    placement = {"layers": layers, "gate": gate}
    given = {name: value for name, value in placement.items() if value is not None}
    settings = stack_from({**stack_from(stack).model_dump(), **given})
    stacked: Any = copy.deepcopy(model)
    sublayers = insert_stacks(stacked, settings)
    stacked.config.__class__ = stacked_config(stacked.config.__class__)
    stacked.config.stack = settings
    stacked.__class__ = stacked_class(stacked.__class__)
    output_capturing._CAN_RECORD_REGISTRY[stacked] = stacked._can_record_outputs  # as the constructor does
    _prepare(stacked)
    for sublayer in sublayers:
        sublayer.apply(stacked.base_model._init_weights)
        initialize_foreign(sublayer)
    return stacked
