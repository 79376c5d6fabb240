"""Build the model of a run: its settings with the vocabularies and the length ratio of the data."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor, nn

from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder, build_language_model, build_model
from structattn.runs.selection import weights_of
from structattn.settings.attention import CrossGaussian
from structattn.settings.base import Settings
from structattn.settings.huggingface import Gpt2Settings, RobertaSettings
from structattn.settings.models import ModelSettings
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.run import RECOGNITION
from structattn.settings.training import LABEL_ONLY, Recognition
from structattn.settings.transformer import (
    EncoderDecoderSettings,
    LanguageModelSettings,
    TwoStreamEncoderDecoderSettings,
)
from structattn.support.errors import SettingsError, UsageError
from structattn.support.imports import lazy_function
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.tokenization.vocabulary import Vocabulary, WordCharacterTokenizer

if TYPE_CHECKING:
    from structattn.interop.huggingface.language_models import build_huggingface
    from structattn.interop.huggingface.pretrained import digests_of, load_pretrained
    from structattn.models.builders.recognition import build_recognizer
    from structattn.models.builders.recurrent import build_recurrent
    from structattn.text.batching.corruption import character_table
else:
    character_table = lazy_function("structattn.text.batching.corruption", "character_table")
    build_recognizer = lazy_function("structattn.models.builders.recognition", "build_recognizer")
    build_recurrent = lazy_function("structattn.models.builders.recurrent", "build_recurrent")
    build_huggingface = lazy_function("structattn.interop.huggingface.language_models", "build_huggingface")
    load_pretrained = lazy_function("structattn.interop.huggingface.pretrained", "load_pretrained")
    digests_of = lazy_function("structattn.interop.huggingface.pretrained", "digests_of")


AnyModelSettings = TypeVar("AnyModelSettings", bound=Settings)


def build_model_for(
    settings: ModelSettings, prepared: PreparedFolder, more_ids: int = 0, recognition: Recognition = LABEL_ONLY
) -> nn.Module:
    """Build a model with the vocabularies of a prepared folder; weights are drawn from torch's global generator.

    Args:
        settings: of the model.
        prepared: the folder.
        more_ids: the number of ids, of words and of characters, by which each vocabulary is to be larger.
        recognition: the losses of recognition, which decide on the outputs of a model for such data.

    Raises:
        SettingsError: source and target are to share embeddings, but have separate vocabularies; or words are to be
            composed of characters, but the folder holds none; or the model cannot recognize strings.
        UsageError: the model is one of transformers, which is not installed.
    """
    if prepared.kind == RECOGNITION:
        return _recognizer(settings, prepared.vocabulary.size + more_ids, recognition)
    if isinstance(settings, Gpt2Settings | RobertaSettings):
        model: nn.Module = _from_transformers(build_huggingface, settings, prepared.vocabulary.size + more_ids)
        return model
    if prepared.parallel_sides is None and isinstance(settings, LanguageModelSettings):
        return build_language_model(settings, _words_of_text(prepared, more_ids))
    if prepared.parallel_sides is None and isinstance(settings, LstmSettings | ElmanSettings):
        return build_recurrent(settings, _words_of_text(prepared, more_ids))
    if prepared.parallel_sides is None or not isinstance(
        settings, EncoderDecoderSettings | TwoStreamEncoderDecoderSettings
    ):
        return build_model(settings, prepared.vocabulary.size + more_ids)
    sides = prepared.sides
    if settings.tied_embeddings == "three-way" and not sides.joint:
        raise SettingsError(
            f"model.tied_embeddings: three-way needs one vocabulary, and {prepared.path} has one for each side"
        )
    source, target = (
        _words(side.vocabulary, side.character_tokenizer, more_ids) for side in (sides.source, sides.target)
    )
    return build_encoder_decoder(resolved_model_settings(settings, prepared), source, target)


def _recognizer(settings: ModelSettings, vocabulary_size: int, recognition: Recognition) -> nn.Module:
    if not isinstance(settings, LanguageModelSettings | LstmSettings | ElmanSettings):
        raise SettingsError(f"model.kind: {settings.kind!r}; recognition needs 'transformer', 'lstm' or 'rnn'")
    model: nn.Module = build_recognizer(settings, vocabulary_size, recognition)
    return model


def expected_weights(
    settings: ModelSettings, prepared: PreparedFolder, more_ids: int = 0, recognition: Recognition = LABEL_ONLY
) -> dict[str, Tensor]:
    """Return the weights of the model on the meta device: names, shapes and dtypes, in no memory."""
    with torch.device("meta"):
        return weights_of(build_model_for(settings, prepared, more_ids, recognition))


def vocabulary_weights(
    settings: ModelSettings, prepared: PreparedFolder, recognition: Recognition = LABEL_ONLY
) -> frozenset[str]:
    """Return the names of the weights with a row or column for each word or character: their shapes depend on these.

    They are embeddings and output layers, and the input weights of a network over one-hot vectors.
    """
    now, larger = (expected_weights(settings, prepared, more_ids, recognition) for more_ids in (0, 1))
    return frozenset(name for name in now if now[name].shape != larger[name].shape)


def resolved_model_settings(settings: AnyModelSettings, prepared: PreparedFolder) -> AnyModelSettings:
    """Return the settings with the values that depend on the data: the length ratio of Gaussian cross-attention."""
    if not isinstance(settings, EncoderDecoderSettings):
        return settings
    return cast(AnyModelSettings, _with_length_ratio(settings, prepared))


def load_pretrained_weights(model: nn.Module, settings: ModelSettings, prepared: PreparedFolder) -> None:
    """Copy the weights of ``settings.pretrained``, if that is given, into a model built for these data.

    Raises:
        SettingsError: the folder is incomplete, or its model or vocabulary is another.
        UsageError: transformers is not installed.
    """
    if isinstance(settings, Gpt2Settings | RobertaSettings) and settings.pretrained is not None:
        _from_transformers(load_pretrained, model, settings, prepared.vocabulary.symbols)


def pretrained_digests(settings: ModelSettings) -> dict[str, str] | None:
    """Return the SHA-256 of each file of ``settings.pretrained``; None if that is not given.

    Raises:
        SettingsError: the folder is incomplete.
        UsageError: transformers is not installed.
    """
    if not isinstance(settings, Gpt2Settings | RobertaSettings) or settings.pretrained is None:
        return None
    digests: dict[str, str] = _from_transformers(digests_of, settings.pretrained)
    return digests


def _from_transformers(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that needs transformers, which is optional and takes seconds to import."""
    try:
        return function(*args)
    except ImportError as error:
        raise UsageError(str(error)) from None


def _with_length_ratio(settings: EncoderDecoderSettings, prepared: PreparedFolder) -> EncoderDecoderSettings:
    """Set the length ratio of the training pairs in the Gaussian cross-attention layers that leave it out."""
    cross = tuple(
        each.model_copy(update={"length_ratio": prepared.length_ratio})
        if isinstance(each, CrossGaussian) and each.length_ratio is None
        else each
        for each in settings.decoder.cross_attention or ()
    )
    decoder = settings.decoder.model_copy(update={"cross_attention": cross or None})
    return settings.model_copy(update={"decoder": decoder})


def _words_of_text(prepared: PreparedFolder, more_ids: int) -> VocabularySpec:
    """Return the words of a text; their characters are those of the vocabulary."""
    vocabulary, level = prepared.vocabulary, prepared.header.tokenizer["level"]
    spelled = vocabulary.symbols[_first_word(vocabulary) :]
    characters = WordCharacterTokenizer.from_counts(dict.fromkeys(spelled, 1)) if level == "word" else None
    return _words(vocabulary, characters, more_ids)


def _words(vocabulary: Vocabulary, tokenizer: WordCharacterTokenizer | None, more_ids: int) -> VocabularySpec:
    size = vocabulary.size + more_ids
    if tokenizer is None:
        return VocabularySpec(size)
    spelled = vocabulary.symbols[_first_word(vocabulary) :]
    return VocabularySpec(size, tokenizer.vocabulary.size + more_ids, partial(character_table, tokenizer, spelled))


def _first_word(vocabulary: Vocabulary) -> int:
    return FIRST_SYMBOL + vocabulary.has_unknown
