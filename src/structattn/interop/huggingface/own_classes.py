"""The models of this package that the AutoModels of transformers build."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from structattn.interop.huggingface.own_models import (
    OwnModel,
    StructattnForCausalLM,
    StructattnForMaskedLM,
    StructattnForSequenceClassification,
    StructattnModel,
)
from structattn.interop.huggingface.own_seq2seq import StructattnForSeq2SeqLM

OWN_CLASSES: Mapping[Any, tuple[type[OwnModel], ...]] = MappingProxyType(
    {
        AutoModel: (StructattnModel,),
        AutoModelForCausalLM: (StructattnForCausalLM,),
        AutoModelForMaskedLM: (StructattnForMaskedLM,),
        AutoModelForSequenceClassification: (StructattnForSequenceClassification,),
        AutoModelForSeq2SeqLM: (StructattnForSeq2SeqLM,),
    }
)
"""AutoModel -> the classes that it builds."""
