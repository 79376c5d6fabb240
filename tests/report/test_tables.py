"""The summary table: every number in its column, the best one in bold, bounds and baselines if available."""

import re

from structattn.report.page import duration, flattened, nats, perplexity, visible
from structattn.report.runs import read_run
from structattn.report.style import line_style
from structattn.report.tables import summary_tables


def shown(*folders):
    return summary_tables([(read_run(folder), line_style(index)) for index, folder in enumerate(folders)])


def tables(markup):
    """Return the cells of each table: that of the runs, and one for each split."""
    found = re.findall(r"<table.*?</table>", markup, flags=re.DOTALL)
    return [
        [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", each, flags=re.DOTALL)]
        for each in found
    ]


def test_bound_and_difference_of_every_split(make_run):
    runs, valid, test = tables(shown(make_run("nd", excess=0.0123)))
    assert runs[0] == [
        "run",
        "parameters",
        "updates",
        "scored update",
        "tokens per second",
        "training time",
        "ended by",
    ]
    assert (runs[1][1], runs[1][3]) == ("33,273", "3,000")
    assert valid[0] == test[0] == ["run", "cross-entropy", "bound", "difference", "perplexity"]
    assert valid[1][1:] == ["0.3966", "0.3843", "0.0123", "1.4868"]
    assert test[1][1:] == ["0.4040", "0.3843", "0.0197", "1.4978"]


def test_the_rate_is_the_mean_of_the_timing_log_and_damaged_lines_are_left_out(make_run):
    run = make_run()
    lines = [
        '{"event": "rate", "tokens_per_second": 1000.0}',
        '{"event": "rate", "tok',
        '{"tokens_per_second": 3000.0}',
    ]
    (run / "timing.jsonl").write_text("\n".join([*lines, '{"tokens_per_second": NaN}', '{"event": "end"}']))
    assert tables(shown(run))[0][1][4] == "2,000"


def test_losses_and_rates_of_recognizers_are_per_string(make_run):
    recognizer, model = make_run("a", task="recognition"), make_run("b")
    assert tables(shown(recognizer))[0][0][4] == "strings per second"
    assert "Cross-entropy in nats per string. " in shown(recognizer)
    assert tables(shown(recognizer, model))[0][0][4] == "tokens per second or strings per second"
    assert "Cross-entropy in nats per token or string, &lt;eos&gt; included. " in shown(recognizer, model)


def test_every_cell_has_the_heading_of_its_column_for_narrow_pages(make_run):
    labels = re.findall(r'<td data-label="([^"]*)"', shown(make_run()))
    assert labels[:6] == ["parameters", "updates", "scored update", "tokens per second", "training time", "ended by"]
    assert labels[6:] == ["cross-entropy", "bound", "difference", "perplexity"] * 2


def test_only_the_smallest_difference_is_bold(make_run):
    markup = shown(make_run("a", excess=0.05), make_run("b", excess=0.01))
    assert re.findall(r"<strong>(.*?)</strong>", markup) == ["0.0100", "0.0160"]


def test_nothing_is_bold_without_a_comparison(make_run):
    assert "<strong>" not in shown(make_run())


def test_baselines_of_real_text(make_run):
    baselines = {"unigram": {"cross_entropy": 6.6, "perplexity": 735.1},
                 "trigram": {"cross_entropy": 5.1, "perplexity": 164.02, "weights": [0.1, 0.3, 0.6]}}  # fmt: skip
    run = make_run(lower_bound=None, cross_entropy_difference=None, baselines=baselines)
    _, *splits = tables(shown(run))
    for head, _, unigram, trigram in splits:
        assert head == ["run", "cross-entropy", "perplexity"]
        assert unigram[1:] == ["6.6000", "735.10"]
        assert "weights 0.10 0.30 0.60" in trigram[0]


def test_masked_models_have_pseudo_perplexity_and_a_note(make_run):
    plain = {"lower_bound": None, "cross_entropy_difference": None}
    markup = shown(make_run("masked", **plain, mask_seed=0, pseudo={"perplexity": 12.345, "num_tokens": 9}))
    _, *splits = tables(markup)
    for head, row in splits:
        assert head[1:] == ["cross-entropy", "perplexity", "pseudo-perplexity"]
        assert row[3] == "12.35"
    assert "cannot be compared with that of causal models" in markup
    assert "cannot be compared" not in shown(make_run("causal", **plain))


def test_translations_and_transductions_have_separate_columns(make_run):
    plain = {"lower_bound": None, "cross_entropy_difference": None}
    metrics = [{"BLEU": {"value": value}, "TER": {"value": 50 - value}} for value in (31.234, 29.5)]
    good, bad = (make_run(name, **plain, translation=each) for name, each in zip("ab", metrics, strict=True))
    _, (head, first, second), _ = tables(shown(good, bad))
    assert head[1:] == ["cross-entropy", "perplexity", "BLEU", "TER"]
    assert first[-2:] == ["<strong>31.23</strong>", "<strong>18.77</strong>"]
    assert second[-2:] == ["29.50", "20.50"]
    _, (head, first, second), _ = tables(shown(make_run("c", **plain, accuracy=0.5), make_run("d", **plain)))
    assert (head[3], first[-1], second[-1]) == ("accuracy", "50.00%", "—")


def test_a_missing_split_leaves_its_cells_empty(make_run):
    whole, partial = make_run("a"), make_run("b")
    (partial / "scores" / "test.json").unlink()
    assert tables(shown(whole, partial))[2][2][1:] == ["—"] * 4


def test_times_are_written_without_what_is_zero_in_front():
    assert [duration(seconds) for seconds in (None, 8.6, 60, 3601, 7325)] == [
        "—",
        "9 s",
        "1 min 0 s",
        "1 h 0 min",
        "2 h 2 min",
    ]


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
