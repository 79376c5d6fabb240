"""Structured attention in models of Hugging Face transformers (5 or newer).

- ``add_stack_attention``: insert stacks into an existing GPT-2 or RoBERTa
- ``PointerStack``, ``SuperpositionStack``, ``NondeterministicStack``: settings of these stacks
- ``StackGPT2...``, ``StackRoberta...``: configurations and models with stacks; importing this package registers them
  with AutoConfig and the AutoModels
- ``StructattnConfig``, ``StructattnForCausalLM``, ``StructattnSeq2SeqConfig``, ...: the models of this package, as
  ``structattn export --to huggingface`` writes them; registered, too
- ``register_attention``, ``register_gaussian``, ``register_hard``: Gaussian and hard attention as values of
  ``attn_implementation`` for any model
"""

from structattn.interop.huggingface.requirement import require_transformers

require_transformers()

from structattn.interop.huggingface.configuration import (
    StackGPT2Config,
    StackRobertaConfig,
    StructattnConfig,
    StructattnSeq2SeqConfig,
)
from structattn.interop.huggingface.own_models import (
    OWN_CLASSES,
    StructattnForCausalLM,
    StructattnForMaskedLM,
    StructattnForSeq2SeqLM,
    StructattnModel,
)
from structattn.interop.huggingface.registry import register_attention, register_gaussian, register_hard
from structattn.interop.huggingface.remote_code import register_classes
from structattn.interop.huggingface.stack_models import (
    CLASSES,
    StackGPT2ForSequenceClassification,
    StackGPT2ForTokenClassification,
    StackGPT2LMHeadModel,
    StackGPT2Model,
    StackRobertaForCausalLM,
    StackRobertaForMaskedLM,
    StackRobertaForSequenceClassification,
    StackRobertaForTokenClassification,
    StackRobertaModel,
    add_stack_attention,
)
from structattn.settings.huggingface import NondeterministicStack, PointerStack, SuperpositionStack

register_classes(CLASSES)
register_classes(OWN_CLASSES)

__all__ = [
    "NondeterministicStack",
    "PointerStack",
    "StackGPT2Config",
    "StackGPT2ForSequenceClassification",
    "StackGPT2ForTokenClassification",
    "StackGPT2LMHeadModel",
    "StackGPT2Model",
    "StackRobertaConfig",
    "StackRobertaForCausalLM",
    "StackRobertaForMaskedLM",
    "StackRobertaForSequenceClassification",
    "StackRobertaForTokenClassification",
    "StackRobertaModel",
    "StructattnConfig",
    "StructattnForCausalLM",
    "StructattnForMaskedLM",
    "StructattnForSeq2SeqLM",
    "StructattnModel",
    "StructattnSeq2SeqConfig",
    "SuperpositionStack",
    "add_stack_attention",
    "register_attention",
    "register_gaussian",
    "register_hard",
]
