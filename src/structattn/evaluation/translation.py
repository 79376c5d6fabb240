"""Scores of a translation run: perplexity, and BLEU, chrF and TER of its beam search translations."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from structattn.data.folders.parallel_side import ParallelSides
from structattn.decoding import max_target_lengths
from structattn.evaluation.run_files import hypotheses_path
from structattn.evaluation.scores import SplitScores
from structattn.inference.pair_scorer import PairScorer
from structattn.inference.runs import TrainedRun, translation_model
from structattn.inference.translator import SEARCHES, Translator
from structattn.inference.unknown_words import Unknown
from structattn.metrics.translation import bleu_metric, corpus_scores
from structattn.models import EncoderDecoder
from structattn.settings.evaluation import EvaluationSettings
from structattn.support.errors import UsageError
from structattn.support.files import create_folder_unflushed, write_atomically
from structattn.support.progress import progress
from structattn.tasks.translation.batches import scoring_pairs
from structattn.tasks.translation.scores import pair_scores


def make_translator(runs: list[TrainedRun], how: EvaluationSettings | None = None) -> Translator:
    """Return a translator with the model of a run, or with an ensemble of the models of several runs.

    Args:
        runs: translation runs.
        how: beam search, length limits and unknown words; by default the evaluation settings of the first run.

    Raises:
        UsageError: a run is not a translation run or was trained with another tokenizer than the first, or the models
            do not support the treatment of unknown words.
    """
    how = how or runs[0].settings.evaluation
    models, sides = _models(runs), runs[0].prepared.sides
    limits = partial(
        max_target_lengths, ratio=how.max_length_ratio, extra=how.max_length_offset, maximum=how.max_length
    )
    unknown = _unknown_word_method(how.unknown_words, models, sides)
    exponent = () if how.length_penalty is None else (how.length_penalty,)
    search = SEARCHES[how.search](how.beam_size, *exponent)
    return Translator(models, sides, search, limits, unknown=unknown)


def make_pair_scorer(runs: Sequence[TrainedRun]) -> PairScorer:
    """Return a scorer of given translations with the model of a run, or with an ensemble of several.

    Raises:
        UsageError: a run is not a translation run, or was trained with another tokenizer than the first.
    """
    return PairScorer(_models(runs), runs[0].prepared.sides)


def _models(runs: Sequence[TrainedRun]) -> tuple[EncoderDecoder, ...]:
    models, sides = [], runs[0].prepared.sides
    for run in runs:
        model = translation_model(run)
        if run.prepared.sides.digests() != sides.digests():
            raise UsageError(f"{run.run_dir}: was trained with another tokenizer than {runs[0].run_dir}")
        models.append(model)
    return tuple(models)


def _unknown_word_method(unknown: Unknown | None, models: Sequence[EncoderDecoder], sides: ParallelSides) -> Unknown:
    spell = all(model.spelling is not None for model in models)
    if unknown == "copy" and sides.level != "word":
        raise UsageError(f"unknown 'copy' needs data of level 'word'; the level of the data is {sides.level!r}")
    if unknown == "spell" and not spell:
        raise UsageError("unknown 'spell' needs a model with model.decoder.spelling")
    return unknown or ("spell" if spell else "keep")


def translation_scores(run: TrainedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run on a split, translate the split, and write the translations to the run folder.

    If the model spells unknown words, the scores with ``<unk>`` kept and with attended source words copied are added.
    """
    tokenizer = run.settings.evaluation.bleu_tokenizer
    bleu_metric(tokenizer)  # raise early if a library is missing
    translator, sources, references = make_translator([run]), *_texts(run, split)
    scores = pair_scores(translation_model(run), scoring_pairs(run.prepared, split, batch_tokens, "both"))
    hypotheses = _translate(translator, sources, split)
    others: tuple[Unknown, ...] = ("keep", "copy") if translator.unknown == "spell" else ()
    target = hypotheses_path(run.run_dir, split)
    create_folder_unflushed(target.parent)  # its name is flushed with the scores
    write_atomically(target, "".join(line + "\n" for line in hypotheses))
    return SplitScores(
        split=split,
        num_sequences=scores.num_sequences,
        num_tokens=scores.num_tokens,
        cross_entropy=scores.cross_entropy,
        perplexity=scores.perplexity,
        lower_bound=None,
        cross_entropy_difference=None,
        by_length=(),
        translation=corpus_scores(hypotheses, references, tokenizer=tokenizer),
        translation_alternatives={
            way: corpus_scores(
                _translate(replace(translator, unknown=way), sources, f"{split} ({way})"),
                references,
                tokenizer=tokenizer,
            )
            for way in others
        }
        or None,
    )


def _texts(run: TrainedRun, split: str) -> tuple[Sequence[str], Sequence[str]]:
    if split == "train":
        raise UsageError("the training text is not stored in the prepared folder; translate another split")
    return run.prepared.texts(split, "source"), run.prepared.texts(split, "target")


def _translate(translator: Translator, sources: Sequence[str], what: str) -> list[str]:
    """Return the best translation of each line."""
    with progress(f"Translating {what}", len(sources), "lines") as advance:
        found = translator(sources, advance=advance)
    return [best[0].text if best else "" for best in found]
