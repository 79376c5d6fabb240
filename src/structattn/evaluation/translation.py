"""Scores of a translation run: perplexity, and BLEU, chrF and TER of what its beam search finds."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from structattn.data.parallel.parallel_side import Sides
from structattn.decoding import max_target_lengths
from structattn.evaluation.analyses import hypotheses_path
from structattn.evaluation.scores import SplitScores
from structattn.inference.pair_scorer import PairScorer
from structattn.inference.runs import TrainedRun
from structattn.inference.translator import SEARCHES, Translator
from structattn.inference.unknown_words import Unknown
from structattn.metrics.translation import bleu_metric, corpus_scores
from structattn.models import EncoderDecoder
from structattn.settings.evaluation import EvaluationSettings
from structattn.support.errors import UsageError
from structattn.support.files import write_atomically
from structattn.support.progress import progress
from structattn.tasks.translation.batches import pairs_to_score
from structattn.tasks.translation.scores import pair_scores


def translator_of(runs: list[TrainedRun], how: EvaluationSettings | None = None) -> Translator:
    """What translates with the model of a run, or with those of several as one.

    Args:
        runs: of translation.
        how: beam search, limits, unknown words; what the settings of the first run say, if left out.

    Raises:
        UsageError: a run is no translation run, or was trained on other subwords than the first; or unknown words
            cannot be treated as is asked.
    """
    how = how or runs[0].settings.evaluation
    models, sides = _models(runs), runs[0].prepared.sides
    limits = partial(max_target_lengths, ratio=how.length_ratio, extra=how.length_extra, maximum=how.length_most)
    unknown = _chosen(how.unknown, models, sides)
    exponent = () if how.length_exponent is None else (how.length_exponent,)
    search = SEARCHES[how.search](how.beam, *exponent)
    return Translator(models, sides, search, limits, unknown=unknown)


def pair_scorer_of(runs: Sequence[TrainedRun]) -> PairScorer:
    """What scores translations with the model of a run, or with those of several as one.

    Raises:
        UsageError: a run is no translation run, or was trained on other subwords than the first.
    """
    return PairScorer(_models(runs), runs[0].prepared.sides)


def _models(runs: Sequence[TrainedRun]) -> tuple[EncoderDecoder, ...]:
    models, sides = [], runs[0].prepared.sides
    for run in runs:
        if not isinstance(run.model, EncoderDecoder):
            raise UsageError(f"{run.folder}: a model of kind {run.settings.model.kind!r} does not translate")
        if run.prepared.sides.digests() != sides.digests():
            raise UsageError(f"{run.folder}: was trained on other subwords than {runs[0].folder}")
        models.append(run.model)
    return tuple(models)


def _chosen(unknown: Unknown | None, models: Sequence[EncoderDecoder], sides: Sides) -> Unknown:
    spell = all(model.spelling is not None for model in models)
    if unknown == "copy" and sides.level != "word":
        raise UsageError(f"unknown 'copy' needs words to copy; the symbols of the data are of level {sides.level!r}")
    if unknown == "spell" and not spell:
        raise UsageError("unknown 'spell' needs a model that spells, one with model.decoder.spelling")
    return unknown or ("spell" if spell else "keep")


def translation_scores(run: TrainedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run on a split, translate the split, and keep the translations beside the scores.

    Those of a model that spells are scored, besides, with ``<unk>`` kept, and with attended source words copied.
    """
    tokenizer = run.settings.evaluation.bleu_tokenizer
    bleu_metric(tokenizer)  # what is missing is said before the work
    translator, sources, references = translator_of([run]), *_texts(run, split)
    scores = pair_scores(run.model, pairs_to_score(run.prepared, split, batch_tokens, "both"))
    hypotheses = _translated(translator, sources, split)
    others: tuple[Unknown, ...] = ("keep", "copy") if translator.unknown == "spell" else ()
    target = hypotheses_path(run.folder, split)
    target.parent.mkdir(exist_ok=True)
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
        otherwise={
            way: corpus_scores(
                _translated(replace(translator, unknown=way), sources, f"{split} ({way})"),
                references,
                tokenizer=tokenizer,
            )
            for way in others
        }
        or None,
    )


def _texts(run: TrainedRun, split: str) -> tuple[Sequence[str], Sequence[str]]:
    if split == "train":
        raise UsageError("the text of the training pairs is not kept: translations of other splits can be scored")
    return run.prepared.texts(split, "source"), run.prepared.texts(split, "target")


def _translated(translator: Translator, sources: Sequence[str], what: str) -> list[str]:
    """The best translation of each line."""
    with progress(f"Translating {what}", len(sources), "lines") as advance:
        found = translator(sources, advance=advance)
    return [best[0].text if best else "" for best in found]
