"""How a model answers the sources of a transformation: probabilities of targets, greedy outputs, samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from structattn.decoding import (
    DecodingStart,
    Hypothesis,
    greedy_search,
    map_in_batches,
    sample,
    start_continuation,
    start_translation,
)
from structattn.models import EncoderDecoder, LanguageModel, MaskedLanguageModel, RecurrentLanguageModel
from structattn.models.mode import evaluating
from structattn.settings.embeddings import max_positions
from structattn.support.devices import device_of
from structattn.support.errors import DataError, UsageError, quoted
from structattn.support.progress import Advance, progress, show_nothing
from structattn.support.seeds import derived_seed
from structattn.support.shapes import Float64
from structattn.support.special_tokens import BOS
from structattn.tasks.language_modeling.evaluate import line_token_losses
from structattn.tasks.language_modeling.generator import GenerationSettings, TextGenerator
from structattn.tasks.loaded import TEXTS, LoadedRun, Prediction, Predictor
from structattn.tasks.losses import token_losses
from structattn.tasks.transformations.rules import TRANSFORMATIONS, Pair, Words
from structattn.tasks.translation.pairs import EncodedPair, PairEncoder
from structattn.tasks.translation.predictions import predictions, spelled_source, translation_model
from structattn.tasks.translation.translators import make_translator
from structattn.text.batching.sequences import sequence_batches

MAX_OUTPUT: Final = 100  # tokens of a greedy output
MAX_SAMPLE: Final = 50
SAMPLES: Final = 10
_ROWS: Final = 512
_BATCH_TOKENS: Final = 8192

LogProbs = Float64[np.ndarray, " tokens"]


@dataclass(frozen=True)
class ModelAnswers:
    """Answers of the model of a run.

    Args:
        model: in evaluation mode while it answers.
        symbols: of the outputs.
        split: the name of the split, for progress bars and the seed of samples.
        start: returns the start of decoding for sources of equal length.
        room: returns the number of output tokens for which the model has positions after a source.
        token_log_probs: returns log p of each word of each target, and of <eos>, given the source and the words before.
    """

    model: LanguageModel | RecurrentLanguageModel | EncoderDecoder
    symbols: Sequence[str]
    split: str
    start: Callable[[Sequence[Words]], DecodingStart]
    room: Callable[[Words], int]
    token_log_probs: Callable[[Sequence[Pair]], list[LogProbs]]

    def greedy(self, sources: Sequence[Words]) -> list[Words]:
        """Return the greedy output for each source, without <eos>; at most ``MAX_OUTPUT`` words."""

        def search(start: DecodingStart, batch: Sequence[Words]) -> list[Hypothesis]:
            return greedy_search(self.model, start, min(MAX_OUTPUT, self.room(batch[0])))

        return self._decoded(sources, search, "Decoding")

    def samples(self, sources: Sequence[Words]) -> list[list[Words]]:
        """Return ``SAMPLES`` outputs of at most ``MAX_SAMPLE`` words for each source, given the split."""
        repeated = [source for source in sources for _ in range(SAMPLES)]

        def draw(start: DecodingStart, batch: Sequence[Words]) -> list[Hypothesis]:
            generator = torch.Generator(start.tokens.device)
            generator.manual_seed(derived_seed(0, "samples", self.split, *(" ".join(source) for source in batch)))
            return sample(self.model, start, min(MAX_SAMPLE, self.room(batch[0])), generator)

        words = self._decoded(repeated, draw, "Sampling")
        return [words[first : first + SAMPLES] for first in range(0, len(words), SAMPLES)]

    def _decoded(
        self, sources: Sequence[Words], decode: Callable[[DecodingStart, Sequence[Words]], list[Hypothesis]], what: str
    ) -> list[Words]:
        """Decode sources of equal length together."""
        outputs: dict[int, Words] = {}
        plan = sequence_batches([len(source) for source in sources], _ROWS, seed=0, epoch=None)
        with evaluating(self.model), progress(f"{what} {self.split}", len(sources), "sources") as advance:
            for indices in plan:
                batch = [sources[index] for index in indices]
                hypotheses = decode(self.start(batch), batch)
                words = (tuple(self.symbols[token] for token in each.text) for each in hypotheses)
                outputs |= zip(indices.tolist(), words, strict=True)
                advance(len(batch))
        return [outputs[index] for index in range(len(sources))]


def language_model_answers(run: LoadedRun, split: str) -> ModelAnswers:
    """Return the answers of a language model, which continues a source with its target."""
    model = run.accelerated
    if isinstance(model, EncoderDecoder | MaskedLanguageModel):
        raise UsageError(f"{run.run_dir}: a model of kind {run.settings.model.kind!r} cannot continue a source")
    encode, device = run.prepared.tokenizer.encode, device_of(model)

    def start(sources: Sequence[Words]) -> DecodingStart:
        prompts = torch.tensor([[BOS, *encode(" ".join(source))] for source in sources], device=device)
        return start_continuation(model, prompts)

    def room(source: Words) -> int:
        maximum = max_positions(run.settings.model)
        return MAX_OUTPUT if maximum is None else maximum - len(source)

    def log_probs(pairs: Sequence[Pair]) -> list[LogProbs]:
        lines = [encode(" ".join((*pair.source, *pair.target))) for pair in pairs]
        losses = line_token_losses(model, lines, _BATCH_TOKENS, f"targets of {split}")
        return [-of_line[len(pair.source) :] for of_line, pair in zip(losses, pairs, strict=True)]

    return ModelAnswers(model, run.prepared.vocabulary.symbols, split, start, room, log_probs)


def pair_answers(run: LoadedRun, split: str) -> ModelAnswers:
    """Return the answers of an encoder-decoder."""
    model, sides, place = translation_model(run), run.prepared.sides, (Path("source"), Path("target"))
    encoder, device = PairEncoder((model,), sides), device_of(model)

    def start(sources: Sequence[Words]) -> DecodingStart:
        batch = encoder.batch([encoder(" ".join(source), "", place, 1) for source in sources]).to(device)
        ids, rare = spelled_source(model, batch.source, batch.unknown_source_words)
        return start_translation(model, ids, batch.source_lengths, rare)

    def room(_: Words) -> int:
        return MAX_OUTPUT if encoder.max_target_length is None else encoder.max_target_length

    @torch.no_grad()
    def of_batch(pairs: list[EncodedPair]) -> list[LogProbs]:
        predicted = predictions(model, encoder.batch(pairs))
        losses = token_losses(predicted.logits, predicted.classes).double().cpu().numpy()
        return [-row[: len(pair.target) + 1] for row, pair in zip(losses, pairs, strict=True)]

    def log_probs(pairs: Sequence[Pair]) -> list[LogProbs]:
        encoded = [encoder(" ".join(pair.source), " ".join(pair.target), place, n) for n, pair in enumerate(pairs, 1)]
        lengths = [max(len(pair.source), len(pair.target)) + 1 for pair in encoded]
        with evaluating(model):
            return map_in_batches(encoded, lengths, _BATCH_TOKENS, of_batch)

    return ModelAnswers(model, run.prepared.vocabulary.symbols, split, start, room, log_probs)


def make_predictor(run: LoadedRun, batch_size: int = 64) -> Predictor:
    """Return a predictor of transformed sentences: a language model continues a sentence, others translate it."""
    answer = _continuing(run, batch_size) if run.prepared.parallel_sides is None else _translating(run, batch_size)
    task = TRANSFORMATIONS[run.prepared.header.extra["transformation"]]

    def predict(
        inputs: Sequence[str], first: int = 1, path: Path = TEXTS, advance: Advance = show_nothing
    ) -> list[Prediction]:
        for number, line in enumerate(inputs, start=first):
            if line.split() and line.split()[-1] not in (task.copy_word, task.change_word):
                expected = f"expected a sentence and at its end the task word {task.copy_word} or {task.change_word}"
                raise DataError(path, f"{quoted(line)}: {expected}", number)
        answers = answer(inputs, first, path, advance)
        return [each if line.split() else Prediction("") for line, each in zip(inputs, answers, strict=True)]

    return predict


_Answer = Callable[[Sequence[str], int, Path, Callable[[int], object]], list[Prediction]]


def _continuing(run: LoadedRun, batch_size: int) -> _Answer:
    greedy = GenerationSettings(temperature=0, max_length=MAX_OUTPUT, batch_size=batch_size)
    generator = TextGenerator(run, greedy)

    def answer(inputs: Sequence[str], *how: Any) -> list[Prediction]:
        return [
            Prediction(" ".join(each.text.split(" ")[len(line.split()) :]), each.log_probability)
            for line, (each,) in zip(inputs, generator(inputs, *how), strict=True)
        ]

    return answer


def _translating(run: LoadedRun, batch_size: int) -> _Answer:
    translator = replace(make_translator([run]), batch_size=batch_size)

    def answer(inputs: Sequence[str], first: int, path: Path, advance: Advance) -> list[Prediction]:
        translations = translator(inputs, 1, advance, first, paths=(path, path))
        return [Prediction(best[0].text, best[0].log_probability) if best else Prediction("") for best in translations]

    return answer
