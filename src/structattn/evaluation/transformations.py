"""Question formation and tense reinflection: has a model learned the hierarchical or the linear rule?

McCoy et al. (2020) compare greedy outputs, DuSell & Cotterell (2025) probabilities.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final, Protocol

import numpy as np
import torch
from jaxtyping import Float64

from structattn.data.batching.sequences import sequence_batches
from structattn.data.folders import PreparedFolder
from structattn.data.transformations import TRANSFORMATIONS, Transformation
from structattn.data.transformations.lexicon import part_of_speech
from structattn.data.transformations.rules import MODIFIERS, Pair, Words, main_verb
from structattn.decoding import (
    DecodingStart,
    Hypothesis,
    greedy_search,
    map_in_batches,
    sample,
    start_continuation,
    start_translation,
)
from structattn.evaluation.cross_entropy import line_token_losses
from structattn.inference.pairs import EncodedPair, PairEncoder
from structattn.inference.runs import TrainedRun, translation_model
from structattn.metrics.proportions import Proportion, wilson_interval
from structattn.models import EncoderDecoder, LanguageModel, MaskedLanguageModel, RecurrentLanguageModel
from structattn.models.mode import evaluating
from structattn.settings.positions import max_positions
from structattn.support.errors import DataError, UsageError
from structattn.support.progress import progress
from structattn.support.seeds import derived_seed
from structattn.support.special_tokens import BOS
from structattn.tasks.losses import token_losses
from structattn.tasks.translation.predictions import predictions, spelled_source

ALL: Final = "all"
MAX_OUTPUT: Final = 100  # tokens of a greedy output
MAX_SAMPLE: Final = 50
SAMPLES: Final = 10
_ROWS: Final = 512
_BATCH_TOKENS: Final = 8192

LogProbs = Float64[np.ndarray, " tokens"]


@dataclass(frozen=True)
class TransformationScores:
    """Scores of a group of pairs; ``wrong`` is the linear rule, on the pairs whose target differs from the right one.

    Args:
        full_match: how often the greedy output is the target.
        full_match_wrong: how often it is the wrong target; None if the rules never differ, here and below.
        probability: mean of p(target <eos> | source).
        conditional_cross_entropy: -log p(target <eos> | source) in nats per token, <eos> counted.
        log_ratio: mean of log p(target <eos> | source) - log p(wrong target <eos> | source); positive: hierarchical.
        first_word: how often the first word of the greedy output is that of the target.
        first_word_wrong: how often it is that of the wrong target.
        first_word_probability: mean probability of the target's first word, given the source.
        first_word_probability_wrong: mean probability of the wrong target's first word.
        main_verb: for tense reinflection: how often the greedy output has the target's parts of speech and main verb.
        main_verb_wrong: how often it has those of the wrong target.
        main_verb_sampled: the same share of ten samples for each source whose targets differ.
        main_verb_sampled_wrong: the same for the wrong target.
    """

    full_match: Proportion
    full_match_wrong: Proportion | None
    probability: float
    conditional_cross_entropy: float
    log_ratio: float | None
    first_word: Proportion
    first_word_wrong: Proportion | None
    first_word_probability: float
    first_word_probability_wrong: float | None
    main_verb: Proportion | None
    main_verb_wrong: Proportion | None
    main_verb_sampled: float | None
    main_verb_sampled_wrong: float | None


class Answerer(Protocol):
    """A model that answers sources."""

    def token_log_probs(self, pairs: Sequence[Pair]) -> list[LogProbs]:
        """Return log p of each word of each target, and of <eos>, given the source and the words before."""

    def greedy(self, sources: Sequence[Words]) -> list[Words]:
        """Return the greedy output for each source, without <eos>; at most ``MAX_OUTPUT`` words."""

    def samples(self, sources: Sequence[Words]) -> list[list[Words]]:
        """Return ``SAMPLES`` outputs for each source, of at most ``MAX_SAMPLE`` words."""


def transformation_of(prepared: PreparedFolder) -> Transformation | None:
    """Return the task of a prepared folder; None if it holds other data."""
    return TRANSFORMATIONS.get(str(prepared.header.extra.get("transformation")))


def transformation_scores(run: TrainedRun, split: str) -> dict[str, TransformationScores]:
    """Score a run on the pairs of a split, all and by the modifier of the subject.

    Raises:
        DataError: the folder states a task that its lines do not have.
    """
    task = transformation_of(run.prepared)
    if task is None:
        raise DataError(run.prepared.path, "holds no question formation or tense reinflection")
    parallel = run.prepared.parallel_sides is not None
    answers = (_pair_answers if parallel else _language_model_answers)(run, split)
    return score_answers(task, _pairs(run.prepared, split, task), answers)


def _pairs(prepared: PreparedFolder, split: str, task: Transformation) -> list[Pair]:
    try:
        if prepared.parallel_sides is not None:
            both = zip(prepared.texts(split, "source"), prepared.texts(split, "target"), strict=True)
            pairs = [Pair(tuple(source.split()), tuple(target.split())) for source, target in both]
        else:
            symbols, sequences = prepared.vocabulary.symbols, prepared.split(split)
            lines = (tuple(symbols[token] for token in sequences[index]) for index in range(len(sequences)))
            pairs = [task.split(line) for line in lines]
        for pair in pairs:
            task.target(pair.source)
    except ValueError as error:
        raise DataError(prepared.path / split, str(error)) from None
    return pairs


@dataclass(frozen=True)
class _Outcome:
    """What a model makes of one pair."""

    pair: Pair
    wrong: Words | None  # None where it is the target
    log_probs: LogProbs
    wrong_log_probs: LogProbs | None
    output: Words
    samples: Sequence[Words]


def score_answers(task: Transformation, pairs: Sequence[Pair], answers: Answerer) -> dict[str, TransformationScores]:
    """Score a model's answers: ``all``, and each modifier of the subject that occurs -> scores.

    Args:
        task: the task.
        pairs: sources and right targets.
        answers: of the model; samples are only drawn for tense reinflection.
    """
    wrong = [target if (target := task.wrong_target(pair.source)) != pair.target else None for pair in pairs]
    differing = [index for index, target in enumerate(wrong) if target is not None]
    found = answers.token_log_probs([*pairs, *[Pair(pairs[i].source, wrong[i] or ()) for i in differing]])
    of_wrong = dict(zip(differing, found[len(pairs) :], strict=True))
    outputs = answers.greedy([pair.source for pair in pairs])
    drawn = answers.samples([pairs[i].source for i in differing]) if task.name == "tense" else []
    samples = dict(zip(differing, drawn, strict=bool(drawn)))
    outcomes = [
        _Outcome(pair, wrong[i], found[i], of_wrong.get(i), outputs[i], samples.get(i, ()))
        for i, pair in enumerate(pairs)
    ]
    groups = {ALL: outcomes}
    for modifier in MODIFIERS:
        groups[modifier] = [each for each in outcomes if task.modifier(each.pair.source) == modifier]
    return {name: _scores(task, members) for name, members in groups.items() if members}


def _scores(task: Transformation, outcomes: Sequence[_Outcome]) -> TransformationScores:
    differ = [(each, each.wrong, each.wrong_log_probs) for each in outcomes]
    pairs = [(each, wrong, log_probs) for each, wrong, log_probs in differ if wrong and log_probs is not None]
    totals = [float(each.log_probs.sum()) for each in outcomes]
    is_tense = task.name == "tense"
    return TransformationScores(
        full_match=wilson_interval([each.output == each.pair.target for each in outcomes]),
        full_match_wrong=_share([each.output == wrong for each, wrong, _ in pairs]),
        probability=fmean(map(math.exp, totals)),
        conditional_cross_entropy=-sum(totals) / sum(len(each.log_probs) for each in outcomes),
        log_ratio=_mean([float(each.log_probs.sum() - log_probs.sum()) for each, _, log_probs in pairs]),
        first_word=wilson_interval([each.output[:1] == each.pair.target[:1] for each in outcomes]),
        first_word_wrong=_share([each.output[:1] == wrong[:1] for each, wrong, _ in pairs]),
        first_word_probability=fmean(math.exp(each.log_probs[0]) for each in outcomes),
        first_word_probability_wrong=_mean([math.exp(log_probs[0]) for _, _, log_probs in pairs]),
        main_verb=_share([_has_main_verb(each.output, each.pair.target) for each in outcomes if is_tense]),
        main_verb_wrong=_share([_has_main_verb(each.output, wrong) for each, wrong, _ in pairs if is_tense]),
        main_verb_sampled=_mean([_has_main_verb(s, each.pair.target) for each, *_ in pairs for s in each.samples]),
        main_verb_sampled_wrong=_mean([_has_main_verb(s, wrong) for each, wrong, _ in pairs for s in each.samples]),
    )


def _has_main_verb(output: Words, target: Words) -> bool:
    """Return whether an output has the parts of speech and the main verb of a target."""
    tags = [[part_of_speech(word) for word in words] for words in (output, target)]
    return tags[0] == tags[1] and main_verb(output) == main_verb(target)


def _share(outcomes: Sequence[bool]) -> Proportion | None:
    return wilson_interval(outcomes) if outcomes else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


@dataclass(frozen=True)
class _ModelAnswers:
    """Answers of the model of a run.

    Args:
        model: in evaluation mode while it answers.
        symbols: of the outputs.
        split: the name of the split, for progress bars and the seed of samples.
        start: returns the start of decoding for sources of equal length.
        room: returns the number of output tokens for which the model has positions after a source.
        log_probs: see ``Answerer``.
    """

    model: LanguageModel | RecurrentLanguageModel | EncoderDecoder
    symbols: Sequence[str]
    split: str
    start: Callable[[Sequence[Words]], DecodingStart]
    room: Callable[[Words], int]
    log_probs: Callable[[Sequence[Pair]], list[LogProbs]]

    def token_log_probs(self, pairs: Sequence[Pair]) -> list[LogProbs]:
        """Return log p of each word of each target; see ``Answerer``."""
        return self.log_probs(pairs)

    def greedy(self, sources: Sequence[Words]) -> list[Words]:
        """Return the greedy outputs; see ``Answerer``."""

        def search(start: DecodingStart, batch: Sequence[Words]) -> list[Hypothesis]:
            return greedy_search(self.model, start, min(MAX_OUTPUT, self.room(batch[0])))

        return self._decoded(sources, search, "Decoding")

    def samples(self, sources: Sequence[Words]) -> list[list[Words]]:
        """Return samples; see ``Answerer``. They are a function of the split and of the sources."""
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
        found: dict[int, Words] = {}
        plan = sequence_batches([len(source) for source in sources], _ROWS, seed=0, epoch=None)
        with evaluating(self.model), progress(f"{what} {self.split}", len(sources), "sources") as advance:
            for indices in plan:
                batch = [sources[index] for index in indices]
                hypotheses = decode(self.start(batch), batch)
                words = (tuple(self.symbols[token] for token in each.text) for each in hypotheses)
                found |= zip(indices.tolist(), words, strict=True)
                advance(len(batch))
        return [found[index] for index in range(len(sources))]


def _language_model_answers(run: TrainedRun, split: str) -> _ModelAnswers:
    """Return the answers of a language model, which continues a source with its target."""
    model = run.model
    if isinstance(model, EncoderDecoder | MaskedLanguageModel):
        raise UsageError(f"{run.run_dir}: a model of kind {run.settings.model.kind!r} cannot continue a source")
    encode, device = run.prepared.tokenizer.encode, next(model.parameters()).device

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

    return _ModelAnswers(model, run.prepared.vocabulary.symbols, split, start, room, log_probs)


def _pair_answers(run: TrainedRun, split: str) -> _ModelAnswers:
    """Return the answers of an encoder-decoder."""
    model, sides, place = translation_model(run), run.prepared.sides, (Path("source"), Path("target"))
    encoder, device = PairEncoder((model,), sides), next(model.parameters()).device

    def start(sources: Sequence[Words]) -> DecodingStart:
        batch = encoder.batch([encoder(" ".join(source), "", place, 1) for source in sources]).to(device)
        ids, rare = spelled_source(model, batch.source, batch.unknown_source_words)
        return start_translation(model, ids, batch.source_lengths, rare)

    def room(_: Words) -> int:
        return MAX_OUTPUT if encoder.max_target_length is None else encoder.max_target_length

    @torch.no_grad()
    def of_batch(pairs: list[EncodedPair]) -> list[LogProbs]:
        found = predictions(model, encoder.batch(pairs))
        losses = token_losses(found.logits, found.classes).double().cpu().numpy()
        return [-row[: len(pair.target) + 1] for row, pair in zip(losses, pairs, strict=True)]

    def log_probs(pairs: Sequence[Pair]) -> list[LogProbs]:
        encoded = [encoder(" ".join(pair.source), " ".join(pair.target), place, n) for n, pair in enumerate(pairs, 1)]
        lengths = [max(len(pair.source), len(pair.target)) + 1 for pair in encoded]
        with evaluating(model):
            return map_in_batches(encoded, lengths, _BATCH_TOKENS, of_batch)

    return _ModelAnswers(model, run.prepared.vocabulary.symbols, split, start, room, log_probs)
