"""Answers of trained models: outputs of transductions, transformed sentences, trees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from structattn.settings.positions import max_positions
from structattn.support.errors import DataError
from structattn.support.special_tokens import FIRST_SYMBOL, id_of
from structattn.tasks.language_modeling.generator import GenerationSettings, TextGenerator
from structattn.tasks.language_modeling.prompts import TextEncoder
from structattn.tasks.loaded import LoadedRun, cannot
from structattn.tasks.losses import to_float32
from structattn.tasks.parsing.predict import Parser, make_parser, treebank_words
from structattn.tasks.parsing.prepare import TREE_TAGS
from structattn.tasks.parsing.trees import bracketed
from structattn.tasks.streams import TEXTS
from structattn.tasks.transductions.batches import FORMS, Ids, batch_of, form_of, transduction_data
from structattn.tasks.transductions.scores import greedy_outputs
from structattn.tasks.transductions.transduction import Transduction
from structattn.tasks.translation.translators import make_translator
from structattn.text.lines import encoded

MAX_ANSWER = 100  # tokens of a transformed sentence


@dataclass(frozen=True)
class Prediction:
    """The answer of a model to an input.

    Args:
        text: symbols of a transduction separated by spaces, a transformed sentence, or a bracketed tree; that of a line
            without words is empty.
        log_probability: of the answer given the input, in nats, <eos> included where the model predicts it; that of the
            linearized tree that the model wrote is not kept, and None.
        repaired: whether a tree was made of symbols that are not the linearization of a tree of these words.
    """

    text: str
    log_probability: float | None = None
    repaired: bool = False


class Predictor(Protocol):
    """Answers inputs independently of each other."""

    def __call__(
        self,
        inputs: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
    ) -> list[Prediction]:
        """Return the answer to each input.

        Args:
            inputs: lines.
            first: the number of the first line, for messages.
            path: of the inputs, for messages.
            advance: called with the number of inputs that have been answered since.

        Raises:
            DataError: an input cannot be encoded, or is too long for the model.
        """


def make_predictor(run: LoadedRun, batch_size: int = 64) -> Predictor:
    """Return a predictor with the model of a run; trees and transformed sentences are searched as the settings say.

    Args:
        run: of a transduction, a transformation, or a parser.
        batch_size: the maximum number of inputs that are answered at once; affects speed and memory only.

    Raises:
        UsageError: the run is of another kind.
    """
    extra = run.prepared.header.extra
    if run.settings.task in FORMS:
        return TransductionPredictor(run, batch_size)
    if TREE_TAGS in extra:
        return TreePredictor(make_parser(run), batch_size)
    if "transformation" in extra and run.prepared.parallel_sides is None:
        how = GenerationSettings(temperature=0, max_length=MAX_ANSWER, batch_size=batch_size)
        return ContinuationPredictor(TextGenerator(TextEncoder(run), how))
    if "transformation" in extra:
        return TransformationPredictor(run, batch_size)
    raise cannot(run, "predict answers", "a transduction, question formation, tense reinflection or a parser")


@dataclass(frozen=True)
class TransductionPredictor:
    """Predicts the outputs of a transduction, each symbol the most probable one.

    A model that predicts symbol by symbol is given its own symbols.

    Args:
        run: of a transduction.
        batch_size: the maximum number of inputs of a batch, which have equal lengths.
    """

    run: LoadedRun
    batch_size: int = 64

    def __call__(
        self,
        inputs: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
    ) -> list[Prediction]:
        """Return the answer to each input; see ``Predictor``."""
        rows = [self._encode(line, path, number) for number, line in enumerate(inputs, start=first)]
        found: dict[int, Prediction] = {}
        for _, group in groupby(sorted(range(len(rows)), key=lambda index: len(rows[index])), lambda i: len(rows[i])):
            same = list(group)
            for start in range(0, len(same), self.batch_size):
                batch = same[start : start + self.batch_size]
                found |= zip(batch, self._predict(np.array([rows[index] for index in batch])), strict=True)
                advance(len(batch))
        return [found[index] for index in range(len(rows))]

    @property
    def _task(self) -> Transduction:
        return transduction_data(self.run.prepared, self.run.settings.seed).task

    def _encode(self, line: str, path: Path, number: int) -> list[int]:
        ids, task = encoded(self.run.prepared.tokenizer, line, path, number), self._task
        for token in ids:
            if token >= FIRST_SYMBOL + len(task.inputs):
                symbol = self.run.prepared.vocabulary.symbols[token]
                raise DataError(path, f"{symbol!r} is not an input of {task.name!r}: {' '.join(task.inputs)}", number)
        if not task.valid_lengths(len(ids), len(ids)):
            raise DataError(path, f"{len(ids)} symbols: {task.name!r} has no inputs of that length", number)
        length, maximum = 1 + len(ids) + task.output_length(len(ids)), max_positions(self.run.settings.model)
        if maximum is not None and length > maximum:
            raise DataError(path, f"input and output have {length} tokens; the model has {maximum} positions", number)
        return ids

    @torch.no_grad()
    def _predict(self, x: Ids) -> list[Prediction]:
        model, vocabulary, form = self.run.accelerated, self.run.prepared.vocabulary, form_of(self.run.settings)
        y = np.full((len(x), self._task.output_length(x.shape[1])), FIRST_SYMBOL, dtype=np.int64)
        if form == "autoregressive":
            y = greedy_outputs(model, vocabulary, x, y.shape[1])
        inputs = batch_of(x, y, vocabulary, form).inputs.to(next(model.parameters()).device)
        log_probs = to_float32(model(inputs)[:, -y.shape[1] :]).log_softmax(-1)
        if form == "autoregressive":
            best = log_probs.gather(2, torch.from_numpy(y - id_of(0)).to(log_probs.device)[:, :, None])[:, :, 0]
        else:
            best, classes = log_probs.max(-1)
            y = id_of(classes).cpu().numpy()
        texts = (" ".join(vocabulary.symbols[token] for token in row) for row in y.tolist())
        return [Prediction(text, total) for text, total in zip(texts, best.double().sum(1).tolist(), strict=True)]


@dataclass(frozen=True)
class ContinuationPredictor:
    """Continues a sentence with its transformation, word by word, as a language model.

    Args:
        generator: takes the most probable token at each step.
    """

    generator: TextGenerator

    def __call__(
        self,
        inputs: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
    ) -> list[Prediction]:
        """Return the answer to each input; see ``Predictor``."""
        found = self.generator(inputs, first, path, advance)
        return [
            Prediction(" ".join(each.text.split(" ")[len(line.split()) :]), each.log_probability)
            for line, (each,) in zip(inputs, found, strict=True)
        ]


@dataclass(frozen=True)
class TransformationPredictor:
    """Translates a sentence into its transformation.

    Args:
        run: of a translation model.
        batch_size: the maximum number of inputs of a batch.
    """

    run: LoadedRun
    batch_size: int = 64

    def __call__(
        self,
        inputs: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
    ) -> list[Prediction]:
        """Return the answer to each input; see ``Predictor``."""
        translator = replace(make_translator([self.run]), batch_size=self.batch_size)
        found = translator(inputs, 1, advance, first, paths=(path, path))
        return [Prediction(best[0].text, best[0].log_probability) if best else Prediction("") for best in found]


@dataclass(frozen=True)
class TreePredictor:
    """Parses sentences.

    Args:
        parser: of the run.
        batch_size: the maximum number of sentences of a batch.
    """

    parser: Parser
    batch_size: int = 64

    def __call__(
        self,
        inputs: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
    ) -> list[Prediction]:
        """Return the answer to each input; see ``Predictor``."""
        parser = replace(self.parser, translator=replace(self.parser.translator, batch_size=self.batch_size))
        found = parser([treebank_words(line) for line in inputs], advance, first, path)
        return [
            Prediction("") if tree is None else Prediction(bracketed(tree.tree), repaired=tree.malformed)
            for tree in found
        ]
