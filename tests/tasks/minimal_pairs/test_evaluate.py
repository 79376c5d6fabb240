"""BLiMP: strict comparison of sentence scores that equal the model's, grouped as in the paper, stored and reported."""

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.program import invoke, succeed
from tests.tasks.text_runs import MODEL, TEXT, by_hand, run_on, trained_on

from structattn.cli.report_page import write_report
from structattn.cli.suites import _sentence_scorer, blimp
from structattn.support.errors import DataError, UsageError
from structattn.tasks.language_modeling.sentences import SentenceScorer, Span, WrittenForm
from structattn.tasks.minimal_pairs.data import FIELDS, PHENOMENA, Continuations, MinimalPair, read_minimal_pairs
from structattn.tasks.minimal_pairs.evaluate import blimp_scores
from structattn.tasks.minimal_pairs.report import PUBLISHED
from structattn.text.reading import Notices

BLIMP = Path(__file__).resolve().parents[4] / "shared/data/blimp"


def pair(good, bad, paradigm="p", phenomenon="binding", field="syntax", line=1, **continuations):
    return MinimalPair(good, bad, paradigm, phenomenon, field, continuations, Path("pairs.jsonl"), line)


@pytest.mark.parametrize(("mode", "first", "with_eos"), [("sentences", 1, True), ("stream", 2, False)])
def test_scores_are_those_of_the_model_token_by_token(tmp_path, mode, first, with_eos):
    run = run_on(tmp_path, mode, min_count=2)
    scorer = SentenceScorer(run, WrittenForm())
    lines = [scorer.encode(text, Path("x"), 1) for text in ("Bo sees a dog .", "dog", "who sleeps Bo .")]
    spans = [*map(scorer.sentence, lines), Span(lines[0], 2, 4)]
    found = scorer.log_probabilities(spans, "x")
    expected = [by_hand(run, ids, first, with_eos) for ids in lines]
    np.testing.assert_allclose(found, [*map(sum, expected), sum(expected[0][2:4])], rtol=1e-5)
    assert [scorer.has_unknown(line) for line in lines] == [True, False, True]


def test_a_class_of_unknown_words_is_unknown(tmp_path):
    scorer = SentenceScorer(run_on(tmp_path, unknown_classes=True), WrittenForm())
    assert not scorer.run.prepared.vocabulary.has_unknown
    assert [scorer.has_unknown(scorer.encode(text, Path("x"), 1)) for text in ("dog .", "cat .")] == [False, True]


@pytest.fixture
def scorer(tmp_path):
    """A scorer whose log-probability is minus the number of tokens."""
    scorer = SentenceScorer(run_on(tmp_path, min_count=2), WrittenForm())
    object.__setattr__(scorer, "log_probabilities", lambda spans, _: np.array([s.start - s.stop for s in spans], float))
    return scorer


def test_a_scorer_that_counts_words_is_right_where_the_bad_sentence_is_longer(scorer):
    pairs = [pair("Bo sees", "Bo sees a dog"), pair("Bo sees", "sees Bo"), pair("a dog sees", "Bo sees")]
    scores = blimp_scores(scorer, pairs)
    assert (scores.overall.sentence.successes, scores.overall.sentence.trials) == (1, 3), "a tie is wrong"
    object.__setattr__(scorer, "log_probabilities", lambda spans, _: np.zeros(len(spans)))
    assert blimp_scores(scorer, pairs).overall.sentence.successes == 0


def test_groups_unknown_words_and_prefix_methods(scorer):
    one = Continuations(("Bo", "Bo"), ("sees", "sees Bo"))
    two = Continuations(("Bo sees", "Bo"), ("a dog", "a"))
    pairs = [
        pair("Bo sees", "Bo sees Bo", "p", "binding", "syntax", one_prefix=one),
        pair("Bo likes", "Bo likes Bo", "p", "binding", "syntax", two_prefix=two),
        pair("Bo sees Bo", "Bo", "q", "ellipsis", "syntax"),
        pair("Bo", "Bo sees", "r", "ellipsis", "semantics"),
    ]
    scores = blimp_scores(scorer, pairs)

    def counts(accuracy):
        values = (accuracy.sentence, accuracy.known, accuracy.one_prefix, accuracy.two_prefix)
        return [each and (each.successes, each.trials) for each in values]

    assert counts(scores.paradigms["p"]) == [(2, 2), (1, 1), (1, 1), (0, 1)]
    assert counts(scores.phenomena["ellipsis"]) == [(1, 2), (1, 2), None, None]
    assert {name: counts(each)[0] for name, each in scores.fields.items()} == {"semantics": (1, 1), "syntax": (2, 3)}
    assert counts(scores.overall) == [(3, 4), (2, 3), (1, 1), (0, 1)]


def test_words_after_a_prefix_are_scored_given_the_prefix(tmp_path):
    scorer = SentenceScorer(run_on(tmp_path), WrittenForm())
    spans = []

    def record(found, what):
        spans.extend(found)
        return np.zeros(len(found))

    object.__setattr__(scorer, "log_probabilities", record)
    words = Continuations(("Bo sees", "Bo sees"), ("a", "Bo"))
    blimp_scores(scorer, [pair("Bo sees a dog", "Bo sees dog", one_prefix=words)])
    good, other = (tuple(scorer.run.prepared.tokenizer.encode(text)) for text in ("Bo sees a dog", "Bo sees Bo"))
    assert spans[-2:] == [Span(good, 2, 3), Span(other, 2, 3)]


@pytest.mark.parametrize(("text", "lowercase"), [("bo sees a dog .\n", True), ("Bo sees a dog .\n", False)])
@pytest.mark.parametrize("level", ["word", "character", "byte"])
def test_lower_case_is_that_of_the_text_at_any_level(tmp_path, level, text, lowercase):
    assert _sentence_scorer(run_on(tmp_path, text=text, level=level), "auto").form.lowercase == lowercase


def test_the_form_of_a_corpus_is_read_off_its_text():
    sentence = "Doesn't Bo's sister, \tthe teachers' dog, sleep?"
    attached = " ".join(sentence.split())
    wikitext = WrittenForm.of_corpus("the U.S. sleeps .\nBo didn 't .", ["A"])
    assert wikitext(sentence) == "Doesn 't Bo 's sister , the teachers ' dog , sleep ?"
    treebank = WrittenForm.of_corpus("bo did n't sleep .", ["a", ".", "n't"])
    assert treebank(sentence) == "does n't bo 's sister , the teachers ' dog , sleep ?"
    assert WrittenForm.of_corpus("Bo sleeps. So does Al .\nAl sleeps.", ["A"])(sentence) == attached
    assert WrittenForm.of_corpus("no stop", ["A"])(sentence) == attached
    assert WrittenForm.of_corpus("bo sleeps", ["<unk>", "UNK-INITC", "bo"]).lowercase
    assert WrittenForm.of_corpus("Bo sleeps .", ["A"], separate_marks=False)(sentence) == attached


@pytest.mark.parametrize("options", [{}, {"level": "character"}, {"level": "bpe", "vocabulary_size": 40}])
@pytest.mark.parametrize("mode", ["sentences", "stream"])
def test_the_text_of_a_prepared_folder_is_decoded(tmp_path, mode, options):
    assert run_on(tmp_path, mode, **options).prepared.beginning().split("\n") == TEXT.split("\n")[:-1]


def entry(**changes):
    return {"sentence_good": "Bo sees.", "sentence_bad": "Bo see.", "field": "syntax/semantics", "UID": "p",
            "linguistics_term": "s-selection", "one_prefix_method": True, "two_prefix_method": False,
            "one_prefix_prefix": "Bo", "one_prefix_word_good": "sees", "one_prefix_word_bad": "see",
            **changes}  # fmt: skip


def test_reading_merges_the_two_spellings_and_the_two_terms(tmp_path):
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps(entry()) + "\n")
    (found,) = read_minimal_pairs(tmp_path, Notices())
    assert (found.field, found.phenomenon) == ("syntax_semantics", "argument_structure")
    assert found.continuations == {"one_prefix": (("Bo", "Bo"), ("sees", "see"))}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", r"holds list; expected a JSON object"),
        ("{", r"not JSON"),
        (json.dumps(entry(sentence_bad=" ")), r"sentence_bad: expected text that matches"),
        (json.dumps(entry(UID=3)), r"UID: expected text"),
        (json.dumps({k: v for k, v in entry().items() if k != "one_prefix_prefix"}), r"one_prefix_prefix: missing"),
    ],
)
def test_malformed_pairs_are_refused_with_their_line(tmp_path, text, message):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(entry()) + "\n" + text + "\n")
    with pytest.raises(DataError, match=rf"a\.jsonl:2.*{message}"):
        read_minimal_pairs(path, Notices())


def test_a_folder_without_pairs_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no minimal pairs"):
        read_minimal_pairs(tmp_path, Notices())


def test_models_without_sentence_probabilities_and_long_sentences_are_refused(translation_run, tmp_path):
    with pytest.raises(UsageError, match="expected a causal model"):
        SentenceScorer(translation_run(), WrittenForm())
    positions = {"kind": "learned", "max_positions": 4}
    scorer = SentenceScorer(run_on(tmp_path, model=MODEL | {"positions": positions}), WrittenForm())
    with pytest.raises(DataError, match=r"pairs\.jsonl:7: the inputs have 6 tokens; the model has 4 positions"):
        blimp_scores(scorer, [pair("Bo", "Bo sees a dog .", line=7)])


def test_the_command_refuses_other_runs_before_it_reads_their_data(translation_run, tmp_path, monkeypatch):
    monkeypatch.setattr("structattn.cli.suites.open_runs", lambda runs, **how: [translation_run()])
    (tmp_path / "pairs.jsonl").write_text(json.dumps(entry()) + "\n")
    with pytest.raises(UsageError, match="task 'translation' gives sentences no probability"):
        blimp(["run"], tmp_path / "pairs.jsonl", "auto", json=False)


@pytest.mark.usefixtures("without_drawing")
def test_the_command_stores_prints_and_reports(tmp_path, monkeypatch):
    monkeypatch.setattr("structattn.tasks.minimal_pairs.data._NUM_PARADIGMS", 2)
    trained_on(tmp_path)
    entries = [entry(UID="p<1>"), entry(UID="q", field="semantics", linguistics_term="quantifiers")]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in entries))
    arguments = [
        "evaluate",
        str(tmp_path / "run"),
        "--suite",
        "blimp",
        "--file",
        str(tmp_path / "pairs.jsonl"),
        "--marks",
        "separate",
    ]
    shown = invoke(*arguments)
    assert shown.exit_code == 1
    assert "'see' is not in the vocabulary, which has no <unk>" in shown.output
    for each in entries:
        each |= {"sentence_bad": "Bo sees Bo.", "one_prefix_word_bad": "sleeps"}
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in entries))
    shown = succeed(*arguments)
    assert "quantifiers" in shown.output
    kept = json.loads((tmp_path / "run/analyses/blimp.json").read_text())
    assert kept["scoring"] == {"start": "<bos>", "eos_scored": True, "separate_marks": True,
                               "separate_negations": False, "lowercase": False}  # fmt: skip
    assert kept["overall"]["sentence"]["trials"] == kept["overall"]["known"]["trials"] == 2
    page = write_report([tmp_path / "run"], tmp_path / "report").read_text()
    assert "Minimal pairs: BLiMP" in page
    assert "p&lt;1&gt;" in page
    assert "83.0" in page, "GPT-2"


def test_published_means_agree_with_the_paradigms_behind_them():
    """The mean over fields, and over phenomena, weighted by their numbers of paradigms, is the overall accuracy."""
    by_field = dict(zip(FIELDS, (26, 18, 14, 9), strict=True))
    by_phenomenon = dict(zip(PHENOMENA, (2, 9, 7, 5, 8, 2, 7, 2, 8, 7, 4, 6), strict=True))
    for name, system in PUBLISHED.items():
        for groups, sizes in ((system.fields, by_field), (system.phenomena, by_phenomenon)):
            if groups and name != "human":
                mean = sum(groups[key] * size for key, size in sizes.items()) / 67
                assert mean == pytest.approx(system.overall, abs=0.1), name


@pytest.mark.slow
@pytest.mark.skipif(not BLIMP.is_dir(), reason="../shared/data/blimp is not there")
def test_the_67_paradigms():
    pairs = read_minimal_pairs(BLIMP, Notices())
    assert set(Counter(each.paradigm for each in pairs).values()) == {1000}
    paradigms = {each.paradigm: each for each in pairs}
    assert len(paradigms) == 67
    assert Counter(each.field for each in paradigms.values()) == dict(zip(FIELDS, (26, 18, 14, 9), strict=True))
    assert {each.phenomenon for each in pairs} == set(PHENOMENA)
    assert Counter(method for each in paradigms.values() for method in each.continuations) == \
        {"one_prefix": 20, "two_prefix": 20}  # fmt: skip
    assert sum(each.good == each.bad for each in pairs) == 7
