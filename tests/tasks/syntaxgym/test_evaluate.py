"""SyntaxGym: regions of tokens, predictions that hold by hand and by other models' scores, and malformed suites."""

import copy
import json
import math
from pathlib import Path

import pytest
from tests.program import invoke, succeed
from tests.tasks.text_runs import by_hand, run_on, trained_on

from structattn.cli.report_page import write_report
from structattn.metrics.statistics import wilson_interval
from structattn.support.errors import DataError, UsageError
from structattn.tasks.language_modeling.sentences import SentenceScorer, WrittenForm
from structattn.tasks.syntaxgym.data import read_suites, sentence
from structattn.tasks.syntaxgym.evaluate import (
    PredictionAccuracy,
    SuiteScores,
    model_scores,
    scores_of_surprisals,
    suite_scores,
)
from structattn.text.reading import Notices

SYNTAXGYM = Path(__file__).resolve().parents[4] / "shared/data/syntaxgym"


def condition(name, *contents):
    regions = [{"region_number": number, "content": text} for number, text in enumerate(contents, start=1)]
    return {"condition_name": name, "regions": regions}


SUITE = {
    "meta": {"name": "by hand", "metric": "sum"},
    "region_meta": {"1": "subject", "2": "adverb", "3": "verb"},
    "predictions": [
        {"type": "formula", "formula": "(3;%match%) < (3;%mismatch%)"},
        {"type": "formula", "formula": "(1;%match%) + (2;%match%) = (1;%mismatch%) + (2;%mismatch%)"},
        {"type": "formula", "formula": "((3;%match%) < 2) | ((*;%mismatch%) > 10 & (2;%match%) > 0)"},
    ],
    "items": [
        {"item_number": 1, "conditions": [condition("match", "Bo", "", "sees a dog"),
                                          condition("mismatch", "Bo", "", "see a dog")]},
        {"item_number": 2, "conditions": [condition("match", "A dog", "who", "sleeps."),
                                          condition("mismatch", "A dog", "who", "sleep.")]},
    ],
}  # fmt: skip


def written(folder, suite=SUITE, name="suite.json"):
    (folder / name).write_text(json.dumps(suite))
    return folder / name


def test_predictions_by_hand(tmp_path):
    """Item 1: 3 < 4, 1 + 0 = 1 + 0, (3 < 2) or (5 > 10 ..). Item 2: 7 < 6, 2 + 1 = 2 + 1.5, .. (13 > 10 and 1 > 0)."""
    (suite,) = read_suites(written(tmp_path), Notices())
    surprisals = {
        1: {"match": {1: 1.0, 2: 0.0, 3: 3.0}, "mismatch": {1: 1.0, 2: 0.0, 3: 4.0}},
        2: {"match": {1: 2.0, 2: 1.0, 3: 7.0}, "mismatch": {1: 2.0, 2: 1.5, 3: 6.0}},
    }
    scores = scores_of_surprisals(suite, surprisals, {2})
    assert [each.items.successes for each in scores.predictions] == [1, 1, 0]
    assert [each.known.successes for each in scores.predictions] == [1, 1, 0]
    assert {each.items.trials for each in scores.predictions} == {2}
    assert {each.known.trials for each in scores.predictions} == {1}
    assert scores.overall.items.successes == 0
    surprisals[2]["mismatch"][3] = 9.0
    assert [each.items.successes for each in scores_of_surprisals(suite, surprisals).predictions] == [2, 1, 1]


def scores_of(file, num_items, first, both, known):
    """The scores of a suite of which the first prediction, and both, hold for so many items."""

    def accuracy(successes):
        holds = [index < successes for index in range(num_items)]
        return PredictionAccuracy("x", wilson_interval(holds), wilson_interval(holds[:known]) if known else None)

    return SuiteScores("a name", file, "sum", accuracy(both), (accuracy(first), accuracy(both)), {})


def test_scores_of_a_model_by_hand():
    """Means of suites and of items differ, as do the first prediction and both; one suite does not count."""
    suites = [
        scores_of("fgd_hierarchy", 10, 6, 0, known=10),
        scores_of("cleft", 40, 20, 20, known=5),
        scores_of("number_orc", 20, 20, 20, known=0),
        scores_of("fgd-embed3", 100, 0, 0, known=100),
        scores_of("my_suite", 10, 3, 3, known=6),
    ]
    assert model_scores(suites) == pytest.approx({
        "mean_of_suites": (0.6 + 0.5 + 1 + 0.3) / 4, "mean_of_items": 49 / 80, "long_distance": 0.55, "agreement": 1,
        "mean_of_suites_strict": (0.0 + 0.5 + 1 + 0.3) / 4, "mean_of_items_strict": 43 / 80,
        "long_distance_strict": 0.25, "agreement_strict": 1, "items_without_unk": 21 / 80,
    })  # fmt: skip
    assert model_scores([suites[3]]) == {}


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("sentences", {"min_count": 2}),
        ("stream", {"level": "character"}),
        ("sentences", {"level": "bpe", "vocabulary_size": 40}),
    ],
    ids=["words", "characters", "bpe"],
)
def test_surprisals_of_regions_are_sums_over_their_tokens(tmp_path, mode, options):
    run = run_on(tmp_path, mode, **options)
    (suite,) = read_suites(written(tmp_path, SUITE | {"items": SUITE["items"][:1]}), Notices())
    scores = suite_scores(SentenceScorer(run, WrittenForm()), suite)
    tokenizer = run.prepared.tokenizer
    whole, first = tokenizer.encode("Bo sees a dog"), tokenizer.encode("Bo")
    assert whole[: len(first)] == first, "the boundary is that of tokens"
    bits = [-each / math.log(2) for each in by_hand(run, whole, 2 if mode == "stream" else 1, with_eos=False)]
    found = scores.surprisals[1]["match"]
    assert list(found.values()) == pytest.approx([sum(bits[: len(first)]), 0.0, sum(bits[len(first) :])], rel=1e-5)
    unknown = options.get("min_count") == 2  # "sees" is seen once in the text
    assert (scores.overall.known is None) == unknown


@pytest.mark.parametrize(
    ("house", "options"),
    [("house", {"min_count": 2}), ("家", {"level": "sentencepiece-unigram", "vocabulary_size": 40})],
    ids=["words", "subwords"],
)
def test_an_unknown_token_may_cross_regions(tmp_path, house, options):
    """Where the text attaches the question mark, "house?" is one word, and "家?" one subword, of the third region."""
    run = run_on(tmp_path, **options)
    item = {"item_number": 1, "conditions": [condition("match", "A dog", "sees the", house, "?")]}
    suite = SUITE | {"predictions": [{"type": "formula", "formula": "(4;%match%) = 0"}], "items": [item]}
    (suite,) = read_suites(written(tmp_path, suite), Notices())
    scores = suite_scores(SentenceScorer(run, WrittenForm()), suite)
    assert scores.overall.items.value == 1
    assert all(value > 0 for region, value in scores.surprisals[1]["match"].items() if region != 4)


def test_other_metrics_and_marks(tmp_path):
    """A full stop begins no new word where the text attaches it; words of the corpus are separate elsewhere."""
    run = run_on(tmp_path)
    scorer = SentenceScorer(run, WrittenForm(separate_marks=True))
    item = {"item_number": 1, "conditions": [condition("match", "A dog", "sees Bo", ", who sleeps", ".")]}
    predictions = [{"formula": "(2;%match%) > 0"}]

    def regions(metric):
        tree = {"meta": {"name": "x", "metric": metric}, "predictions": predictions, "items": [item]}
        (suite,) = read_suites(written(tmp_path, tree), Notices())
        return suite_scores(scorer, suite).surprisals[1]["match"]

    bits = [
        -each / math.log(2)
        for each in by_hand(run, run.prepared.tokenizer.encode("A dog sees Bo , who sleeps ."), 1, False)
    ]
    assert regions("all") == regions("sum")
    assert regions("mean") == pytest.approx(
        {1: sum(bits[:2]) / 2, 2: sum(bits[2:4]) / 2, 3: sum(bits[4:7]) / 3, 4: bits[7]}, rel=1e-5
    )
    assert regions("range")[3] == pytest.approx(max(bits[4:7]) - min(bits[4:7]), rel=1e-4)
    assert regions("median")[3] == pytest.approx(sorted(bits[4:7])[1], rel=1e-5)
    assert sentence(["A dog", "", "sees Bo", ", who sleeps", "."]) == "A dog sees Bo, who sleeps."


@pytest.mark.skipif(not SYNTAXGYM.is_dir(), reason="../shared/data/syntaxgym is not there")
@pytest.mark.parametrize("model", ["grnn", "transformer-xl"])
def test_predictions_from_region_scores_of_other_models(model):
    """Prediction of the suite: region 3 is more surprising after "that" than after "what"."""
    (suite,) = read_suites(SYNTAXGYM / "test_in.json", Notices())
    given = json.loads((SYNTAXGYM / f"test_out_{model}.json").read_text())
    surprisals, right = {}, 0
    for item in given["items"]:
        of_item = surprisals[item["item_number"]] = {
            each["condition_name"]: {
                region["region_number"]: region["metric_value"]["sum"] for region in each["regions"]
            }
            for each in item["conditions"]
        }
        right += of_item["that"][3] > of_item["what"][3]
    scores = scores_of_surprisals(suite, surprisals)
    (prediction,) = scores.predictions
    assert prediction.formula == "(3;%that%) > (3;%what%)"
    assert (prediction.items.successes, prediction.items.trials) == (right, 2)
    assert right == {"grnn": 0, "transformer-xl": 2}[model]


@pytest.mark.skipif(not SYNTAXGYM.is_dir(), reason="../shared/data/syntaxgym is not there")
def test_the_sample_of_the_format_is_read():
    (suite,) = read_suites(SYNTAXGYM / "sample_suite.json", Notices())
    assert suite.predictions[0].holds({("match", 2): 1.0, ("mismatch", 2): 1.1})
    assert dict(suite.items[0].conditions["mismatch"]) == {1: "The woman", 2: "play", 3: "the guitar"}


def changed(path, value):
    tree = copy.deepcopy(SUITE)
    *parents, last = path
    place = tree
    for key in parents:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return tree


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([1], "the file: expected an object"),
        (changed(["meta"], None), "meta: missing"),
        (changed(["meta", "metric"], "product"), "meta.metric: expected 'sum'"),
        (changed(["predictions"], []), "predictions: expected at least one item"),
        (changed(["predictions", 1, "formula"], "(3;%match%) <"), "predictions.1.formula: .*column 14: found 'the en"),
        (changed(["predictions", 0], {"relation": "same", "region_number": 1, "l_operand": "a", "r_operand": "b"}),
         "predictions.0.relation: expected 'greaterthan'"),
        (changed(["predictions", 0, "formula"], "(3;%match%) < (3;%other%)"),
         "predictions.0: item 1 has no condition 'other'; it has match, mismatch"),
        (changed(["predictions", 0, "formula"], "(4;%match%) < 3"),
         "predictions.0: item 1 has no region 4 in condition 'match'"),
        (changed(["items", 1, "conditions", 0, "regions", 2, "content"], 3), "items.1.conditions.0.regions.2.content"),
        (changed(["items", 1, "item_number"], 1), "two items have the same item_number"),
        (changed(["items", 0, "conditions", 1, "condition_name"], "match"), "item 1, condition 'match': occurs twice"),
        (changed(["items", 0, "conditions", 0, "regions", 2, "region_number"], 1), "its regions do not increase"),
        (changed(["items", 0, "conditions", 0], condition("match", "", " ", "")), "all its regions are empty"),
    ],
)  # fmt: skip
def test_malformed_suites_are_refused_with_their_place(tmp_path, tree, message):
    with pytest.raises(DataError, match=rf"suite\.json: .*{message}"):
        read_suites(written(tmp_path, tree), Notices())


def test_a_byte_order_mark_is_dropped_with_a_notice(tmp_path):
    path, notices = written(tmp_path), Notices()
    (without,) = read_suites(path, notices)
    assert notices.messages == ()
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert [suite.items for suite in read_suites(path, notices)] == [without.items]
    assert notices.messages == (f"{path}: the byte-order mark at the start is dropped",)
    path.write_text("{")
    with pytest.raises(DataError, match=r"suite\.json: not JSON"):
        read_suites(path, notices)


def test_a_folder_without_suites_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no suites"):
        read_suites(tmp_path, Notices())


def test_words_without_unk_are_refused_by_item_and_condition(tmp_path, translation_run):
    (suite,) = read_suites(written(tmp_path), Notices())
    with pytest.raises(DataError, match=r"suite\.json: item 1, condition 'mismatch': 'see' is not in the vocabulary"):
        suite_scores(SentenceScorer(run_on(tmp_path), WrittenForm()), suite)
    with pytest.raises(UsageError, match="expected a causal model"):
        SentenceScorer(translation_run(), WrittenForm())


@pytest.mark.usefixtures("without_drawing")
def test_the_command_stores_prints_and_reports(tmp_path):
    trained_on(tmp_path, min_count=2)
    (tmp_path / "suites").mkdir()
    written(tmp_path / "suites", name="agreement.json")
    written(tmp_path / "suites", SUITE | {"predictions": SUITE["predictions"][:1]}, "number_prep.json")
    shown = succeed(
        "evaluate", tmp_path / "run", "--suite", "syntaxgym", "--file", tmp_path / "suites", "--marks", "separate"
    )
    assert "(3;%match%) < (3;%mismatch%)" in shown.output
    assert "[0 %]" in shown.output, "all items have unknown words"
    kept = json.loads((tmp_path / "run/analyses/syntaxgym-agreement.json").read_text())
    assert kept["scoring"]["separate_marks"] is True
    found = kept["surprisals"]["1"]
    successes = int(found["match"]["3"] < found["mismatch"]["3"])
    found = kept["surprisals"]["2"]
    successes += int(found["match"]["3"] < found["mismatch"]["3"])
    assert kept["predictions"][0]["items"]["successes"] == successes
    of_model = json.loads((tmp_path / "run/analyses/syntaxgym.json").read_text())
    assert of_model["suites"] == ["agreement", "number_prep"]
    all_hold = kept["overall"]["items"]["value"]
    means = successes / 2, (all_hold + successes / 2) / 2
    assert (of_model["scores"]["mean_of_suites"], of_model["scores"]["mean_of_suites_strict"]) == means
    page = write_report([tmp_path / "run"], tmp_path / "report").read_text()
    assert "by hand: (3;%match%) &lt; (3;%mismatch%)" in page
    for text in (shown.output, page):
        assert "mean of suites" in text
        assert f"{100 * means[0]:.1f} / {100 * means[1]:.1f}" in text
    printed = invoke(
        "evaluate",
        tmp_path / "run",
        "--suite",
        "syntaxgym",
        "--file",
        tmp_path / "suites",
        "--marks",
        "separate",
        "--json",
    )
    (of_run,) = json.loads(printed.output)
    assert [suite["file"] for suite in of_run["scores"]] == of_model["suites"]
    assert of_run["model_scores"] == of_model["scores"]
    alone = succeed("evaluate", tmp_path / "run", "--suite", "syntaxgym", "--file", tmp_path / "suites/agreement.json")
    assert "mean of suites" not in alone.output
    assert json.loads((tmp_path / "run/analyses/syntaxgym.json").read_text()) == of_model
