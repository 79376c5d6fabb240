"""Scores of a translation run: perplexity, and BLEU, chrF and TER of its beam search translations."""

from collections.abc import Sequence
from dataclasses import replace

from structattn.metrics.translation import bleu_metric, corpus_scores
from structattn.runs.store import hypotheses_path
from structattn.support.files import create_folder_unflushed, replace_file, sha256_of_file
from structattn.support.progress import progress
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.scores import SplitScores
from structattn.tasks.translation.batches import scoring_pairs
from structattn.tasks.translation.predict import Translator
from structattn.tasks.translation.predictions import translation_model
from structattn.tasks.translation.task import pair_scores
from structattn.tasks.translation.translators import make_translator
from structattn.tasks.translation.unknown_words import Unknown


def translation_scores(run: LoadedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run on a split, translate the split, and write the translations to the run folder.

    If the model spells unknown words, the scores with ``<unk>`` kept and with attended source words copied are added.
    """
    tokenizer = run.settings.evaluation.bleu_tokenizer
    bleu_metric(tokenizer)  # raise early if a library is missing
    translator = replace(make_translator([run]), warns=False)
    sources, references = run.prepared.texts(split, "source"), run.prepared.texts(split, "target")
    scores = pair_scores(translation_model(run), scoring_pairs(run.prepared, split, batch_tokens, "both"))
    hypotheses = _translate(translator, sources, split)
    others: tuple[Unknown, ...] = ("keep", "copy") if translator.unknown == "spell" else ()
    target = hypotheses_path(run.run_dir, split)
    create_folder_unflushed(target.parent)  # its name is flushed with the scores
    replace_file(target, "".join(line + "\n" for line in hypotheses))
    return SplitScores(
        split=split,
        translations_digest=sha256_of_file(target),
        num_sequences=scores.num_sequences,
        num_tokens=scores.num_tokens,
        cross_entropy=scores.cross_entropy,
        perplexity=scores.perplexity,
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


def _translate(translator: Translator, sources: Sequence[str], what: str) -> list[str]:
    """Return the best translation of each line."""
    with progress(f"Translating {what}", len(sources), "lines") as advance:
        translations = translator(sources, advance=advance)
    return [best[0].text if best else "" for best in translations]
