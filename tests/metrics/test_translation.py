"""Scores of translations against sacrebleu's own functions."""

import pytest

from structattn.support.errors import UsageError

sacrebleu = pytest.importorskip("sacrebleu")

from structattn.metrics.translation import compare_systems, corpus_scores  # noqa: E402 - needs sacrebleu

REFERENCES = ["one two three four five", "two three one four", "a b c d e f", "x y z"]
HYPOTHESES = ["one two three four", "two three one four", "no word of it", ""]


def test_scores_and_signatures_are_those_of_sacrebleu():
    scores = corpus_scores(HYPOTHESES, REFERENCES, samples=100)
    for metric in (sacrebleu.BLEU(), sacrebleu.CHRF(), sacrebleu.TER()):
        found = metric.corpus_score(HYPOTHESES, [REFERENCES])
        assert scores[found.name].value == pytest.approx(found.score, rel=1e-6)
    assert scores["BLEU"].signature == "nrefs:1|bs:100|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:" + (
        sacrebleu.__version__
    )


def test_samples_without_a_common_word_do_not_end_the_bootstrap():
    hypotheses = ["one two three four five", *["none"] * 9]
    references = ["one two three four five", *["a b"] * 9]
    assert corpus_scores(hypotheses, references, samples=100)["BLEU"].interval > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corpus_scores([], []), "there are no translations; expected at least one"),
        (lambda: compare_systems([], [], []), "there are no translations; expected at least one"),
        (lambda: corpus_scores(["a"], []), "1 translations for 0 references; expected equally many"),
        (lambda: compare_systems(["a"], [], ["a"]), "0 translations for 1 references; expected equally many"),
        (lambda: corpus_scores(["a"], ["a"], samples=1), "samples is 1; expected at least 2"),
        (lambda: compare_systems(["a"], ["a"], ["a"], samples=0), "samples is 0; expected at least 2"),
        (lambda: corpus_scores(["a"], ["a"], tokenizer="foo"), "tokenizer is 'foo'; expected one of sacrebleu"),
        (lambda: corpus_scores("abc", "abd"), "are one string; expected a list"),
    ],
)
def test_what_cannot_be_scored_is_refused(call, message):
    with pytest.raises(UsageError, match=message):
        call()
