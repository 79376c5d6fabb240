"""Hidden states of words: the top layer of a trained model at the first subword of each word."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from structattn.attention import Streams
from structattn.decoding import map_in_batches, pad_sequences
from structattn.models import EncoderDecoder
from structattn.models.block import HiddenStates
from structattn.models.embedding import TwoStreamEmbedding
from structattn.settings.run import MASKED_LANGUAGE_MODELING
from structattn.settings.training import StreamBatches
from structattn.settings.transformer import reads_bos
from structattn.support.devices import device_of
from structattn.support.errors import DataError, quoted
from structattn.support.progress import Advance, show_nothing
from structattn.support.shapes import Float
from structattn.support.special_tokens import BOS, EOS
from structattn.tasks.loaded import LoadedRun, require_positions
from structattn.tasks.translation.predictions import spelled_source
from structattn.text.batching.corruption import unknown_words_of_lines
from structattn.text.folders.text_tokenizer import TextTokenizer, word_ids
from structattn.text.tokenization.tokenizers import SymbolTokenizer, TextError, Tokenizer, split_line

BATCH_TOKENS = 8192
"""The padded size of a batch of sentences."""


@dataclass(frozen=True)
class EncodedWords:
    """A sentence as the inputs of a model.

    Args:
        inputs: ids, special tokens included.
        first: the position in ``inputs`` of the first token of each word.
        words: the normalized words that the ids stand for, at level ``word``; empty elsewhere.
    """

    inputs: tuple[int, ...]
    first: tuple[int, ...]
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class WordFeatures:
    """Computes hidden states of words.

    Args:
        run: any run of text. Of translation models this is the encoder's output; of language models the hidden states
            before the output layer, which of causal models depend on the words so far only.
    """

    run: LoadedRun

    @property
    def streams(self) -> tuple[str | None, ...]:
        """The names of the streams; ``(None,)`` for a model with a single one."""
        two_streams = any(isinstance(module, TwoStreamEmbedding) for module in self.run.model.modules())
        return Streams._fields if two_streams else (None,)

    def encode(self, words: Sequence[str], path: Path, line: int) -> EncodedWords:
        """Normalize and encode a sentence.

        Raises:
            DataError: a word cannot be encoded or has no tokens, or the sentence is too long for the model.
        """
        ids, first = list(self._before), list[int]()
        for word in words:
            ids += self._tokens_between(path, line) if first else ()
            first.append(len(ids))
            ids += self._word_ids(word, path, line, first=len(first) == 1)
        ids += self._after
        require_positions(self.run, len(ids), line, path)
        return EncodedWords(tuple(ids), tuple(first), self._spelled_words(words))

    @torch.no_grad()
    def __call__(
        self, sentences: Sequence[EncodedWords], advance: Advance = show_nothing
    ) -> dict[str | None, Float[np.ndarray, "words d_model"]]:
        """Return the hidden states of all words, sentence by sentence, for each stream.

        Cost: one pass of the model; memory for all words in float32.
        """

        def of_batch(batch: list[EncodedWords]) -> list[Float[Tensor, "stream words d_model"]]:
            states = self._hidden_states(batch)
            stacked = torch.stack(tuple(states) if isinstance(states, Streams) else (states,)).float()
            advance(len(batch))
            return [stacked[:, row, list(each.first)].cpu() for row, each in enumerate(batch)]

        found = map_in_batches(sentences, [len(each.inputs) for each in sentences], BATCH_TOKENS, of_batch)
        return dict(zip(self.streams, torch.cat(found, dim=1).numpy(), strict=True))

    def _hidden_states(self, batch: list[EncodedWords]) -> HiddenStates:
        model = self.run.accelerated
        inputs, lengths = pad_sequences([each.inputs for each in batch], device_of(model))
        if not isinstance(model, EncoderDecoder):
            return model.hidden_states(inputs, lengths)
        speller, unknown = self.run.prepared.sides.source.character_tokenizer, None
        if speller is not None:
            ids = [each.inputs[: len(each.words)] for each in batch]
            unknown = unknown_words_of_lines([each.words for each in batch], ids, inputs.shape[1], speller)
            unknown = unknown.to(inputs.device)
        source, spellings = spelled_source(model, inputs, unknown)
        return model.encode(source, lengths, spellings)

    def _word_ids(self, word: str, path: Path, line: int, first: bool) -> list[int]:
        try:
            ids = word_ids(self._text_tokenizer, word, first=first)
        except TextError as error:
            raise DataError(path, f"{quoted(word)}: {error.reason}", line) from None
        if not ids:
            raise DataError(path, f"{quoted(word)} has no tokens", line)
        return ids

    def _tokens_between(self, path: Path, line: int) -> list[int]:
        try:
            return self._separator
        except TextError as error:
            raise DataError(path, f"the space between words: {error.reason}", line) from None

    def _spelled_words(self, words: Sequence[str]) -> tuple[str, ...]:
        parallel = self.run.prepared.parallel_sides
        if parallel is None or parallel.source.character_tokenizer is None:
            return ()
        return tuple(part for word in words for part in split_line("word", self._text_tokenizer.normalized(word)))

    @cached_property
    def _text_tokenizer(self) -> TextTokenizer:
        prepared = self.run.prepared
        return prepared.tokenizer if prepared.parallel_sides is None else prepared.sides.source

    @property
    def _tokenizer(self) -> Tokenizer:
        return self._text_tokenizer.tokenizer

    @cached_property
    def _separator(self) -> list[int]:
        """The tokens between words: a space among characters and bytes; subwords mark the boundaries themselves."""
        return self._tokenizer.encode(" ") if isinstance(self._tokenizer, SymbolTokenizer) else []

    @cached_property
    def _before(self) -> tuple[int, ...]:
        """The special token before a sentence: none, ``<bos>``, or ``<eos>`` in a stream."""
        settings = self.run.settings
        if not reads_bos(settings.model) or isinstance(self.run.model, EncoderDecoder):
            return ()
        if settings.task == MASKED_LANGUAGE_MODELING:
            return (BOS,)
        return (EOS,) if isinstance(settings.training.batches, StreamBatches) else (BOS,)

    @property
    def _after(self) -> tuple[int, ...]:
        """The special token after a sentence: ``<eos>`` for models that see it in training."""
        sees = isinstance(self.run.model, EncoderDecoder) or self.run.settings.task == MASKED_LANGUAGE_MODELING
        return (EOS,) if sees else ()
