"""Models of runs as models of transformers: of its own classes where they compute the same, else of ours."""

from pathlib import Path
from typing import Any, Final, cast

from torch import nn
from transformers import GenerationConfig, PreTrainedModel

from structattn.interop.huggingface.gpt2_from_own import gpt2_from_own, is_gpt2
from structattn.interop.huggingface.language_models import HuggingfaceLanguageModel
from structattn.interop.huggingface.own_configuration import StructattnConfig, StructattnSeq2SeqConfig
from structattn.interop.huggingface.own_models import OwnModel, StructattnForCausalLM, StructattnForMaskedLM
from structattn.interop.huggingface.own_translation import StructattnForSeq2SeqLM
from structattn.interop.huggingface.pretrained import quiet
from structattn.models import LanguageModel, MaskedLanguageModel
from structattn.settings.encoder_decoder import EncoderDecoderSettings
from structattn.settings.model import LanguageModelSettings
from structattn.settings.models import ModelSettings
from structattn.settings.positions import max_positions
from structattn.support.files import let_others_read
from structattn.support.special_tokens import BOS, CLASS_OFFSET, EOS, PAD

MAX_NEW_TOKENS: Final = 512  # that ``generate`` adds by default, where the model has no maximum


def transformers_model(
    model: nn.Module, settings: ModelSettings, source_size: int, vocabulary_size: int
) -> PreTrainedModel:
    """Return a model of transformers with the weights of ``model``, which may be shared.

    Args:
        model: of a run.
        settings: of the model.
        source_size: the number of ids of the source of a translation; otherwise that of the vocabulary.
        vocabulary_size: the number of ids.
    """
    if isinstance(model, HuggingfaceLanguageModel):
        return model.model
    if is_gpt2(settings):
        return gpt2_from_own(cast(LanguageModel, model), cast(LanguageModelSettings, settings)).eval()
    tree = settings.model_dump(mode="json", exclude_defaults=True) | {"kind": settings.kind}
    if isinstance(settings, EncoderDecoderSettings):
        sizes = {"vocab_size": vocabulary_size, "source_vocab_size": source_size}
        return _with_weights(StructattnForSeq2SeqLM, StructattnSeq2SeqConfig(settings=tree, **sizes), model)
    own_class = StructattnForMaskedLM if isinstance(model, MaskedLanguageModel) else StructattnForCausalLM
    return _with_weights(own_class, StructattnConfig(settings=tree, vocab_size=vocabulary_size), model)


def _with_weights(own_class: type[OwnModel], config: Any, model: nn.Module) -> OwnModel:
    found = own_class(config)
    found.model = model
    found.eval()
    return found


def save_transformers_model(model: PreTrainedModel, folder: Path, start: int) -> str:
    """Write configuration, weights and the settings of ``generate`` into a folder that the caller flushes.

    Args:
        model: what ``transformers_model`` returned.
        folder: an existing folder.
        start: the id that texts begin with.

    Returns:
        The name of the model's class.
    """
    if model.can_generate():
        ours = isinstance(model, OwnModel)
        maximum = max_positions(model.config.model_settings()) if ours else model.config.max_position_embeddings
        model.generation_config = GenerationConfig(
            pad_token_id=PAD,
            bos_token_id=start,
            eos_token_id=EOS,
            decoder_start_token_id=BOS if model.config.is_encoder_decoder else None,
            max_length=maximum,
            max_new_tokens=MAX_NEW_TOKENS if maximum is None else None,
            suppress_tokens=None if ours else list(range(CLASS_OFFSET)),
            use_cache=not ours,
        )
    with quiet():
        model.save_pretrained(folder)
    for path in folder.glob("*.safetensors"):
        let_others_read(path)
    return type(model).__name__
