"""Training of the tokenizer of a text from the counts of its words, characters or bytes."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.tokenization.pretrained_tokenizer import read_pretrained_tokenizer
from structattn.text.tokenization.subword_tokenizer import build_subword_tokenizers
from structattn.text.tokenization.subword_training import pretoken_counts, pretokenizer, train_subword_model
from structattn.text.tokenization.tokenizers import SymbolTokenizer, choose_vocabulary
from structattn.text.tokenization.unknown_classes import replace_rare_words, unknown_class


def train_tokenizer(train: Mapping[str, int], held_out: Iterable[str], settings: TextSettings) -> TextTokenizer:
    """Choose a vocabulary, train subwords, or read a pretrained tokenizer.

    Args:
        train: how often each symbol of the settings' unit occurs in the training text.
        held_out: the symbols of the other texts.
        settings: the kind of tokenizer.

    Raises:
        DataError: the pretrained tokenizer is missing or damaged.
        UsageError: an optional library is not installed.
    """
    if settings.tokenizer is not None:
        return TextTokenizer(read_pretrained_tokenizer(Path(settings.tokenizer)), settings.normalization)
    if settings.subwords:
        return _train_subwords(train, settings)
    if settings.unknown_classes:
        return _train_with_classes(train, held_out, settings)
    vocabulary = choose_vocabulary(
        settings.level, train, min_count=settings.min_count, max_symbols=settings.max_symbols, held_out=held_out
    )
    return TextTokenizer(SymbolTokenizer(settings.level, vocabulary), settings.normalization)


def _train_with_classes(train: Mapping[str, int], held_out: Iterable[str], settings: TextSettings) -> TextTokenizer:
    """Choose a vocabulary of words and classes; it has ``<unk>`` only if ``train`` lacks a class of ``held_out``."""
    counts = replace_rare_words(train, max(2, settings.min_count))
    others = (word if word in counts else unknown_class(word) for word in held_out)
    vocabulary = choose_vocabulary("word", counts, max_symbols=settings.max_symbols, held_out=others)
    return TextTokenizer(SymbolTokenizer("word", vocabulary, unknown_classes=True), settings.normalization)


def _train_subwords(words: Mapping[str, int], settings: TextSettings) -> TextTokenizer:
    pretokens = pretoken_counts(words, pretokenizer(settings.level, settings.marker))
    model = train_subword_model(settings.level, pretokens, settings.vocabulary_size, settings.marker)
    (tokenizer,) = build_subword_tokenizers(model, [pretokens], settings.min_count)
    return TextTokenizer(tokenizer, settings.normalization)
