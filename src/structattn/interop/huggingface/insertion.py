"""Insertion of stacks into existing models, and registration with the Auto classes."""

import copy
from typing import Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from structattn.interop.huggingface import gpt2, own_models, roberta
from structattn.interop.huggingface import own_models as own_translation
from structattn.interop.huggingface.configuration import (
    StackGPT2Config,
    StackRobertaConfig,
    StructattnConfig,
    StructattnSeq2SeqConfig,
)
from structattn.settings.huggingface import Stack

CLASSES: dict[Any, tuple[type[PreTrainedModel], ...]] = {
    AutoModel: (gpt2.StackGPT2Model, roberta.StackRobertaModel),
    AutoModelForCausalLM: (gpt2.StackGPT2LMHeadModel, roberta.StackRobertaForCausalLM),
    AutoModelForMaskedLM: (roberta.StackRobertaForMaskedLM,),
    AutoModelForSequenceClassification: (
        gpt2.StackGPT2ForSequenceClassification,
        roberta.StackRobertaForSequenceClassification,
    ),
    AutoModelForTokenClassification: (
        gpt2.StackGPT2ForTokenClassification,
        roberta.StackRobertaForTokenClassification,
    ),
}


OWN_CLASSES: dict[Any, tuple[type[PreTrainedModel], ...]] = {
    AutoModel: (own_models.StructattnModel,),
    AutoModelForCausalLM: (own_models.StructattnForCausalLM,),
    AutoModelForMaskedLM: (own_models.StructattnForMaskedLM,),
    AutoModelForSeq2SeqLM: (own_translation.StructattnForSeq2SeqLM,),
}


def register_models() -> None:
    """Register configurations and models with AutoConfig and the AutoModels; called on import."""
    for config in (StackGPT2Config, StackRobertaConfig, StructattnConfig, StructattnSeq2SeqConfig):
        AutoConfig.register(config.model_type, config, exist_ok=True)
    for auto, classes in [*CLASSES.items(), *OWN_CLASSES.items()]:
        for model_class in classes:
            auto.register(model_class.config_class, model_class, exist_ok=True)


def add_stack_attention(model: PreTrainedModel, stack: Stack | dict[str, Any] | None = None) -> PreTrainedModel:
    """Return a copy of a model with stacks inserted.

    Parameters of the stacks are initialised by the model's own rule. With ``gate=True`` the new model's outputs equal
    those of ``model`` exactly until it is trained.

    Args:
        model: a GPT-2 or RoBERTa without stacks; not modified.
        stack: which mechanism, in which layers (``PointerStack``, ``SuperpositionStack``, ``NondeterministicStack``, or
            a dict with the same keys); None: a stack pointer in every layer, as in the paper.

    Returns:
        The model, with the same device, dtype and mode.

    Raises:
        ValueError: ``model`` is of another class, or the settings are invalid.
    """
    stacked_class = _class_for(model)
    settings = {**model.config.to_dict(), "model_type": stacked_class.config_class.model_type, "stack": stack}
    config = stacked_class.config_class.from_dict(settings, attn_implementation=model.config._attn_implementation)
    stacked = stacked_class(config).to(device=model.device, dtype=model.dtype).train(model.training)
    keys = stacked.load_state_dict(model.state_dict(), strict=False)
    if keys.unexpected_keys or any(".stack." not in key for key in keys.missing_keys):
        raise ValueError(f"the weights of a {type(model).__name__} do not fit a {stacked_class.__name__}: {keys}")
    if model.can_generate():
        stacked.generation_config = copy.deepcopy(model.generation_config)
    return stacked


def _class_for(model: PreTrainedModel) -> Any:
    known = [model_class for classes in CLASSES.values() for model_class in classes]
    for model_class in known:
        if type(model) in model_class.__bases__:
            return model_class
    expected = ", ".join(model_class.__name__.removeprefix("Stack") for model_class in known)
    raise ValueError(f"stacks cannot be inserted into a {type(model).__name__}; expected one of {expected}")
