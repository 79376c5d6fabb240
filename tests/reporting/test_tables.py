"""The summary table: every number in its column, the best one in bold, bounds and baselines if available."""

import re

from structattn.reporting.figures.palette import line_style
from structattn.reporting.labels import flattened, nats, perplexity, visible
from structattn.reporting.runs import read_run
from structattn.reporting.tables import summary_table


def shown(*folders):
    return summary_table([(read_run(folder), line_style(index)) for index, folder in enumerate(folders)])


def cells(markup):
    rows = re.findall(r"<tr>(.*?)</tr>", markup, flags=re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_bound_and_difference_of_every_split(make_run):
    (_, below, row) = cells(shown(make_run("nd", excess=0.0123)))
    assert below == ["cross-entropy", "bound", "difference", "perplexity"] * 2
    assert row[1:] == [
        "33,273",
        "3,000",
        "0.3966",
        "0.3843",
        "0.0123",
        "1.4868",
        "0.4040",
        "0.3843",
        "0.0197",
        "1.4978",
    ]


def test_only_the_smallest_difference_is_bold(make_run):
    markup = shown(make_run("a", excess=0.05), make_run("b", excess=0.01))
    assert re.findall(r"<strong>(.*?)</strong>", markup) == ["0.0100", "0.0160"]


def test_nothing_is_bold_without_a_comparison(make_run):
    assert "<strong>" not in shown(make_run())


def test_baselines_of_real_text(make_run):
    baselines = {"unigram": {"cross_entropy": 6.6, "perplexity": 735.1},
                 "trigram": {"cross_entropy": 5.1, "perplexity": 164.02, "weights": [0.1, 0.3, 0.6]}}  # fmt: skip
    run = make_run(lower_bound=None, cross_entropy_difference=None, baselines=baselines)
    _, below, _, unigram, trigram = cells(shown(run))
    assert below == ["cross-entropy", "perplexity"] * 2
    assert unigram[1:] == ["", "", "6.6000", "735.10", "6.6000", "735.10"]
    assert "weights 0.10 0.30 0.60" in trigram[0]


def test_masked_models_have_pseudo_perplexity_and_a_note(make_run):
    plain = {"lower_bound": None, "cross_entropy_difference": None}
    markup = shown(make_run("masked", **plain, mask_seed=0, pseudo={"perplexity": 12.345, "num_tokens": 9}))
    _, below, row = cells(markup)
    assert below == ["cross-entropy", "perplexity", "pseudo-perplexity"] * 2
    assert row[5] == row[8] == "12.35"
    assert "cannot be compared with that of causal models" in markup
    assert "cannot be compared" not in shown(make_run("causal", **plain))


def test_translations_and_transductions_have_separate_columns(make_run):
    plain = {"lower_bound": None, "cross_entropy_difference": None}
    metrics = [{"BLEU": {"value": value}, "TER": {"value": 50 - value}} for value in (31.234, 29.5)]
    good, bad = (make_run(name, **plain, translation=each) for name, each in zip("ab", metrics, strict=True))
    _, below, first, second = cells(shown(good, bad))
    assert below == ["cross-entropy", "perplexity", "BLEU", "TER"] * 2
    assert first[-2:] == ["<strong>31.23</strong>", "<strong>18.77</strong>"]
    assert second[-2:] == ["29.50", "20.50"]
    _, below, first, second = cells(shown(make_run("c", **plain, accuracy=0.5), make_run("d", **plain)))
    assert (below[2], first[-1], second[-1]) == ("accuracy", "50.00%", "—")


def test_a_missing_split_leaves_its_cells_empty(make_run):
    whole, partial = make_run("a"), make_run("b")
    (partial / "scores" / "test.json").unlink()
    assert cells(shown(whole, partial))[3][-4:] == ["—"] * 4


def test_numbers_and_tokens_as_text():
    assert [nats(None), nats(0.00004), perplexity(1.46862), perplexity(12345.678)] == [
        "—",
        "0.0000",
        "1.4686",
        "12,345.68",
    ]
    assert [visible(token) for token in (" ", "\n", "", "a b", "\x07", "<bos>")] == ["␣", "⏎", "∅", "a␣b", "\\x07", "▷"]
    assert visible("a" * 30) == "a" * 13 + "…"
    assert flattened({"a": {"b": None, "c": ["x", "y"]}, "d": [1]}) == [("a.b", "—"), ("a.c", "x y"), ("d", "[1]")]
