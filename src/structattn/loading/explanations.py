"""Explanations of texts: the attention weights of all layers of a trained model, as records."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from structattn.attention import Explanation
from structattn.decoding import greedy_search, max_target_lengths, start_continuation, start_translation
from structattn.loading.records import Record, records_of
from structattn.models import EncoderDecoder, LanguageModel, MaskedLanguageModel, RecurrentLanguageModel
from structattn.models.encoder_decoder import EncoderDecoderExplanation
from structattn.settings.model import reads_bos
from structattn.settings.positions import max_positions
from structattn.settings.run import RunSettings
from structattn.settings.tasks import MASKED_LANGUAGE_MODELING
from structattn.support.errors import DataError, UsageError
from structattn.support.special_tokens import BOS, EOS, PAD, UNK
from structattn.tasks.loaded import TrainedModel
from structattn.tasks.streams import require_no_string
from structattn.tasks.transductions.batches import FORMS, batch_of, form_of, transduction_data
from structattn.tasks.translation.pairs import EncodedPair, PairEncoder
from structattn.tasks.translation.predictions import spelled_source
from structattn.text.batching.pairs import PairBatch
from structattn.text.batching.sequences import Batch
from structattn.text.folders.parallel_side import ParallelSides
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.lines import encoded, ids_of_lines, is_stream
from structattn.text.tokenization.tokenizers import Tokenizer
from structattn.text.tokenization.vocabulary import Vocabulary

TEXTS, TARGETS = Path("texts"), Path("targets")  # in messages, in place of the path of a file


def explain_texts(
    model: TrainedModel,
    prepared: PreparedFolder,
    settings: RunSettings,
    texts: Sequence[str],
    targets: Sequence[str] | None = None,
) -> list[list[Record]]:
    """Return the records of all layers and heads for each text, one text at a time.

    Args:
        model: in evaluation mode.
        prepared: the data that the model was trained on; its tokenizer encodes the texts.
        settings: of the run.
        texts: lines of text; strings of a formal language; inputs of a transduction, symbols separated by spaces;
            source lines, for translation. A text for a model of a stream may have several lines.
        targets: answers or translations, one for each text; None: greedy search finds them. For tasks with answers
            only. A masked transduction predicts its answers, so it does not need them.

    Raises:
        DataError: a text or target cannot be encoded, or is too long for the model.
        UsageError: there is not one target for each text, or the task has no targets.
    """
    for given in (texts, targets):
        require_no_string(given)
    batches = text_batches(model, prepared, settings, texts, targets)
    return [example_records(model, prepared, batch) for batch in batches]


def text_batches(
    model: TrainedModel,
    prepared: PreparedFolder,
    settings: RunSettings,
    texts: Sequence[str],
    targets: Sequence[str] | None = None,
) -> Iterator[Batch | PairBatch]:
    """Yield each text as a batch of size 1, a pair for translation; arguments and errors as for ``explain_texts``.

    The targets of a batch are <pad> where nothing is predicted: in texts of masked language models, and where the
    answer of a masked transduction is not given.
    """
    if targets is not None and len(targets) != len(texts):
        raise UsageError(f"{len(targets)} targets for {len(texts)} texts; expected one for each")
    if targets is not None and not isinstance(model, EncoderDecoder) and settings.task not in FORMS:
        raise UsageError(f"the task {settings.task!r} has no targets")
    answers = [None] * len(texts) if targets is None else targets
    numbered = enumerate(zip(texts, answers, strict=True), start=1)
    if isinstance(model, EncoderDecoder):
        yield from (_pair_batch(model, prepared.sides, *pair, number) for number, pair in numbered)
    elif settings.task in FORMS:
        transduction = _TransductionBatches(model, prepared, settings)
        yield from (transduction(*pair, number) for number, pair in numbered)
    else:
        yield from (_text_batch(prepared.tokenizer, settings, text, number) for number, (text, _) in numbered)


def example_records(
    model: TrainedModel, prepared: PreparedFolder, batch: Batch | PairBatch, depths: int = 0
) -> list[Record]:
    """Return the records of all layers and heads for a batch of size 1.

    Args:
        model: in evaluation mode.
        prepared: the data that the model was trained on.
        batch: of pairs, for translation, which is explained under teacher forcing.
        depths: the number of depths of stacks whose contents are computed.
    """
    if isinstance(batch, PairBatch):
        assert isinstance(model, EncoderDecoder)
        return records_of_pair(model, prepared.sides, batch, depths)
    assert not isinstance(model, EncoderDecoder)
    return sequence_records(model, prepared.vocabulary, batch.inputs, depths)


@torch.no_grad()
def sequence_records(
    model: LanguageModel | MaskedLanguageModel | RecurrentLanguageModel,
    vocabulary: Vocabulary,
    inputs: Int[Tensor, "1 time"],
    depths: int = 0,
) -> list[Record]:
    """Return the records of all layers and heads of a model of one sequence.

    Args:
        model: in evaluation mode.
        vocabulary: of the ids.
        inputs: the ids that the model is given, which begin with <bos>, or <eos> in a stream.
        depths: the number of depths of stacks whose contents are computed.
    """
    tokens = _symbols(vocabulary, inputs)
    explanations: list[Explanation] = model.explain(inputs.to(_device(model)))
    return [record for explanation in explanations for record in records_of(explanation, tokens, depths=depths)]


def explain_pairs(model: EncoderDecoder, batch: PairBatch) -> EncoderDecoderExplanation:
    """Return the attention weights of all layers for a batch of pairs, under teacher forcing."""
    batch = batch.to(_device(model))
    source, rare = spelled_source(model, batch.source, batch.unknown_source_words)
    return model.explain(source, batch.inputs, batch.source_lengths, batch.lengths, rare)


def records_of_pair(model: EncoderDecoder, sides: ParallelSides, batch: PairBatch, depths: int = 0) -> list[Record]:
    """Return the records of all layers and heads for one pair (batch size 1), under teacher forcing."""
    source = _symbols(sides.source.vocabulary, batch.source)
    target = _symbols(sides.target.vocabulary, batch.inputs)
    explanation = explain_pairs(model, batch)
    records = list[Record]()
    for layer in explanation.encoder:
        records += records_of(layer, source, side="encoder", depths=depths)
    for layer in explanation.decoder:
        memory = source if layer.sublayer == "cross" else None
        records += records_of(layer, target, memory, side="decoder", depths=depths)
    return records


def _pair_batch(model: EncoderDecoder, sides: ParallelSides, source: str, target: str | None, number: int) -> PairBatch:
    """Return a pair; without a target, with the translation that greedy search finds."""
    encoder = PairEncoder((model,), sides)
    pair = encoder(source, target or "", (TEXTS, TARGETS), number)
    if target is None:
        batch = encoder.batch([pair]).to(_device(model))
        ids, rare = spelled_source(model, batch.source, batch.unknown_source_words)
        limits = max_target_lengths(batch.source_lengths - 1, maximum=model.max_target_positions)
        start = start_translation(model, ids, batch.source_lengths, rare)
        (found,) = greedy_search(model, start, limits)
        return decoded_pair_batch(encoder, pair, found.text)
    return encoder.batch([pair])


def decoded_pair_batch(
    encoder: PairEncoder, pair: EncodedPair, translation: tuple[int, ...], replacements: Iterable[str] = ()
) -> PairBatch:
    """Return a source with the ids of a translation that was decoded, without <eos>, as a batch of size 1.

    Args:
        encoder: of the model.
        pair: the source, with any target.
        translation: the ids.
        replacements: the words of the <unk> among them, whose spellings a model may predict; <unk> itself where
            missing.
    """
    symbols, rest = encoder.sides.target.vocabulary.symbols, iter(replacements)
    words = tuple(next(rest, symbols[UNK]) if token == UNK else symbols[token] for token in translation)
    return encoder.batch(
        [EncodedPair(pair.source, translation, None if pair.words is None else (pair.words[0], words))]
    )


def _text_batch(tokenizer: Tokenizer, settings: RunSettings, text: str, number: int) -> Batch:
    """Return a text for a language model, with inputs ``<bos> text``, or ``<eos> line 1 <eos> line 2 ...`` in a stream.

    A masked model reads ``<bos> line 1 <eos> line 2 <eos> ...``, without masks, and without ``<bos>`` if so trained.
    """
    lines = ids_of_lines(tokenizer, settings, text, TEXTS, number)
    if settings.task == MASKED_LANGUAGE_MODELING:
        ids = [BOS] * reads_bos(settings.model) + [token for line in lines for token in (*line, EOS)]
        targets = [PAD] * len(ids)
    else:
        ids = [token for line in lines for token in (EOS if is_stream(settings) else BOS, *line)]
        targets = [*ids[1:], EOS]
    _require_positions(len(ids), settings, number)
    return Batch(torch.tensor([ids]), torch.tensor([targets]), torch.tensor([len(ids)]), (number - 1,))


class _TransductionBatches:
    """Makes batches of a transduction model from texts.

    Args:
        model: in evaluation mode.
        prepared: folder of a transduction.
        settings: of the run.
    """

    def __init__(
        self,
        model: LanguageModel | MaskedLanguageModel | RecurrentLanguageModel,
        prepared: PreparedFolder,
        settings: RunSettings,
    ) -> None:
        self.model, self.tokenizer, self.settings = model, prepared.tokenizer, settings
        self.data, self.form = transduction_data(prepared, settings.seed), form_of(settings)

    def __call__(self, text: str, target: str | None, number: int) -> Batch:
        """Return a text as a batch of size 1, with its answer or, of an autoregressive model, the one that is found."""
        x = np.array([encoded(self.tokenizer, text, TEXTS, number)], dtype=np.int64)
        if target is None:
            y = np.full((1, self._answer_length(x.shape[1], number)), EOS, dtype=np.int64)
        else:
            y = np.array([encoded(self.tokenizer, target, TARGETS, number)], dtype=np.int64)
        _require_positions(1 + x.shape[1] + y.shape[1], self.settings, number)
        if target is None and self.form == "autoregressive" and not isinstance(self.model, MaskedLanguageModel):
            prompt = batch_of(x, y[:, :1], self.data.vocabulary, self.form).inputs.to(_device(self.model))
            (found,) = greedy_search(self.model, start_continuation(self.model, prompt), y.shape[1])
            y = np.array([found.tokens], dtype=np.int64)
        batch = batch_of(x, y, self.data.vocabulary, self.form, number - 1)
        known = target is not None or self.form == "autoregressive"
        return batch if known else replace(batch, targets=torch.full_like(batch.targets, PAD))

    def _answer_length(self, length: int, number: int) -> int:
        try:
            return self.data.task.output_length(length)
        except ValueError:
            name = self.data.task.name
            raise DataError(TEXTS, f"{length} symbols: {name!r} has no inputs of that length", number) from None


def _require_positions(length: int, settings: RunSettings, number: int) -> None:
    maximum = max_positions(settings.model)
    if maximum is not None and length > maximum:
        raise DataError(TEXTS, f"the inputs have {length} tokens; the model has {maximum} positions", number)


def _symbols(vocabulary: Vocabulary, ids: Int[Tensor, "1 time"]) -> tuple[str, ...]:
    return tuple(vocabulary.symbols[token] for token in ids[0].tolist())


def _device(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device
