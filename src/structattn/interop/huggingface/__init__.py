"""Structured attention in models of Hugging Face transformers (5 or newer).

- ``add_stack_attention``: insert stacks into an existing Llama, GPT-NeoX, BERT or any model with one list of blocks
- ``PointerStack``, ``SuperpositionStack``, ``NondeterministicStack``: settings of these stacks
- ``StackLlamaForCausalLM``, ``StackBertConfig``, ...: each model and configuration of transformers with stacks; the use
  of a name registers its family with AutoConfig and the AutoModels, as GPT-2 and RoBERTa are from the start
- ``StructattnConfig``, ``StructattnForCausalLM``, ``StructattnSeq2SeqConfig``, ...: the models of this package, as
  ``structattn export --to huggingface`` writes them; registered, too
- ``register_attention``, ``register_gaussian``, ``register_hard``: Gaussian and hard attention as values of
  ``attn_implementation`` for any model
"""

from typing import Any

from structattn.interop.huggingface.requirement import require_transformers

require_transformers()

from transformers import GPT2Config, RobertaConfig

from structattn.interop.huggingface.configuration import StructattnConfig, StructattnSeq2SeqConfig
from structattn.interop.huggingface.own_models import (
    StructattnForCausalLM,
    StructattnForMaskedLM,
    StructattnForSequenceClassification,
    StructattnModel,
)
from structattn.interop.huggingface.own_seq2seq import OWN_CLASSES, StructattnForSeq2SeqLM
from structattn.interop.huggingface.registry import register_attention, register_gaussian, register_hard
from structattn.interop.huggingface.remote_code import register_classes
from structattn.interop.huggingface.stack_models import add_stack_attention, class_with_stacks, stacked_classes
from structattn.settings.huggingface import NondeterministicStack, PointerStack, SuperpositionStack

stacked_classes(GPT2Config)
stacked_classes(RobertaConfig)
register_classes(OWN_CLASSES)


def __getattr__(name: str) -> Any:
    """Return the class of a model or configuration with stacks."""
    return class_with_stacks(name)


__all__ = [
    "NondeterministicStack",
    "PointerStack",
    "StructattnConfig",
    "StructattnForCausalLM",
    "StructattnForMaskedLM",
    "StructattnForSeq2SeqLM",
    "StructattnForSequenceClassification",
    "StructattnModel",
    "StructattnSeq2SeqConfig",
    "SuperpositionStack",
    "add_stack_attention",
    "register_attention",
    "register_gaussian",
    "register_hard",
]
