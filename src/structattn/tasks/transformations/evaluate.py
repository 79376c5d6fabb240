"""Question formation and tense reinflection: has a model learned the hierarchical or the linear rule?

McCoy et al. (2020) compare greedy outputs, DuSell & Cotterell (2025) probabilities.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from structattn.metrics.statistics import Proportion, wilson_interval
from structattn.support.errors import DataError
from structattn.tasks.language_modeling.evaluate import language_modeling_scores
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.scores import SplitScores, TransformationScores
from structattn.tasks.transformations.predict import LogProbs, ModelAnswers, language_model_answers, pair_answers
from structattn.tasks.transformations.rules import (
    MODIFIERS,
    TRANSFORMATIONS,
    Pair,
    Transformation,
    Words,
    main_verb,
    part_of_speech,
)
from structattn.tasks.translation.evaluate import translation_scores
from structattn.text.folders.prepared import PreparedFolder

ALL: Final = "all"


def evaluate_transformation(run: LoadedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run on a split as language model or as translation, with its answers but on the training split."""
    base = language_modeling_scores if run.prepared.parallel_sides is None else translation_scores
    scores = base(run, split, batch_tokens)
    return scores if split == "train" else replace(scores, transformation=transformation_scores(run, split))


def transformation_scores(run: LoadedRun, split: str) -> dict[str, TransformationScores]:
    """Score a run on the pairs of a split, all and by the modifier of the subject.

    Raises:
        DataError: the folder states a task that its lines do not have.
    """
    task = TRANSFORMATIONS.get(str(run.prepared.header.extra.get("transformation")))
    if task is None:
        raise DataError(run.prepared.path, "holds no question formation or tense reinflection")
    parallel = run.prepared.parallel_sides is not None
    answers = (pair_answers if parallel else language_model_answers)(run, split)
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


def score_answers(
    task: Transformation, pairs: Sequence[Pair], answers: ModelAnswers
) -> dict[str, TransformationScores]:
    """Score a model's answers: ``all``, and each modifier of the subject that occurs -> scores.

    Samples are drawn for tense reinflection only.
    """
    wrong = [target if (target := task.wrong_target(pair.source)) != pair.target else None for pair in pairs]
    differing = [index for index, target in enumerate(wrong) if target is not None]
    log_probs = answers.token_log_probs([*pairs, *[Pair(pairs[i].source, wrong[i] or ()) for i in differing]])
    of_wrong = dict(zip(differing, log_probs[len(pairs) :], strict=True))
    outputs = answers.greedy([pair.source for pair in pairs])
    drawn = answers.samples([pairs[i].source for i in differing]) if task.name == "tense" else []
    samples = dict(zip(differing, drawn, strict=bool(drawn)))
    outcomes = [
        _Outcome(pair, wrong[i], log_probs[i], of_wrong.get(i), outputs[i], samples.get(i, ()))
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
