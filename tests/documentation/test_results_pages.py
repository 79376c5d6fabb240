"""The pages of results are those of the stored files, and their verdicts those of the scores."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from structattn.metrics.statistics import sample_statistics
from structattn.settings.sweep import SweepSettings

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "results"))

import figures  # noqa: E402
import findings  # noqa: E402
import sections  # noqa: E402
import write_page  # noqa: E402
from stored import HERE, Stored, setting_changes, stored  # noqa: E402

NAMES = sorted(path.relative_to(HERE).with_suffix("").as_posix() for path in HERE.glob("*/*.json"))
EARLIER = {  # the recipe has changed since; the sections say what
    "deterministic_context_free/autoregressive",
    "deterministic_context_free/small",
    "discrete_transformer/translation_small",
    "stack_translation/small",
}


@pytest.fixture(scope="module")
def verdicts():
    return [row for tables in write_page.verdicts().values() for rows in tables.values() for row in rows]


@pytest.fixture
def first_of_each_kind(monkeypatch):
    """Figures are drawn, but only the first of each kind is rendered, which takes most of the time of all pages."""

    def save(figure, path, save=figures.save):
        kind = path.stem.endswith("-by-length")
        if kind in rendered:
            path.touch()
        else:
            rendered.add(kind)
            save(figure, path)

    rendered = set()
    monkeypatch.setattr(figures, "save", save)
    yield
    assert len(rendered) == 2


@pytest.mark.parametrize("rendered", ["first_of_each_kind", pytest.param("all", marks=pytest.mark.slow)])
def test_the_pages_are_those_of_the_stored_results(tmp_path, request, rendered):
    if rendered != "all":
        request.getfixturevalue(rendered)
    pages = write_page.pages(tmp_path)
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `python results/write_page.py`"
    written = {path.name for path in write_page.PAGES.iterdir()}
    assert written == {path.name for path in tmp_path.iterdir()} | {path.name for path in pages} - {"results.md"}
    linked = {name for text in pages.values() for name in re.findall(r"\]\(([\w-]+\.svg)\)", text)}
    assert linked == {name for name in written if name.endswith(".svg")}
    assert sorted(name for name in NAMES if f"{name}.json" not in "".join(pages.values())) == []


def test_the_first_page_is_short():
    assert len((ROOT / "docs" / "results.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_verdicts_follow_from_intervals(verdicts):
    assert {row.verdict for row in verdicts} <= set(findings.VERDICTS)
    for row in verdicts:
        limits = re.search(r"\((\S+) to (\S+)\)", row.difference)
        if row.verdict in (findings.AGREES, findings.DISAGREES) and row.finding.claim is not None:
            low, high = map(float, limits.groups())
            claim = row.finding.claim
            margin, above = claim.margin / row.finding.unit, claim.above is not None or claim.at_least is not None
            side = low > margin if above else high < -margin
            assert side == (row.verdict == findings.AGREES)
        elif row.verdict not in (findings.AGREES, findings.DISAGREES):
            assert row.why, f"{row.finding.finding}: no reason"


def test_a_finding_cannot_state_its_verdict():
    with pytest.raises(ValueError, match="verdict"):
        findings.Finding.model_validate({"finding": "x", "verdict": "agrees"})


def test_a_verdict_is_that_of_the_lines_of_the_trials(verdicts):
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed; pip install scipy")
    path = HERE / "stack_pointer_text/small.trials.jsonl"
    scores = {"stack": {}, "vanilla": {}}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if line["cell"]["form"] == "MLM":
            scores[line["cell"]["model"]][line["seed"]] = line["scores"]["test"]["perplexity"]
    differences = [scores["stack"][seed] - scores["vanilla"][seed] for seed in (1, 2, 3)]
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    (row,) = (row for row in verdicts if row.finding.finding == "stacks help masked models (WikiText-2)")
    assert row.difference == f"{np.mean(differences):+.3g} ({low:.3g} to {high:.3g})"
    assert (row.verdict, high < 0) == (findings.AGREES, True)


def test_a_model_that_has_not_learned_its_task_decides_nothing(verdicts):
    (row,) = (row for row in verdicts if row.finding.finding.startswith("LSTM+Nd with the reading"))
    assert row.verdict == findings.NOT_HERE
    assert "LSTM has 3.33e-05 in test.full_match" in row.why


def test_the_better_model_must_have_learned_recognition_for_the_arena_to_judge(verdicts):
    """An LSTM at chance does not beat a transformer above it; one at chance that beats it says nothing."""
    (row,) = (row for row in verdicts if row.finding.finding == "LSTM does not beat Tf on Dyck")
    assert "agrees in [the arena]" in write_page.decided(row).why
    turned = row.finding.claim.model_copy(update={"above": None, "below": row.finding.claim.above})
    judged = findings.in_arena(row.finding.model_copy(update={"claim": turned}))
    assert judged.verdict == findings.NOT_HERE
    assert "0.6 is needed" in judged.why


def test_what_has_not_been_learned_says_nothing_of_longer_strings(verdicts):
    (row,) = (row for row in verdicts if row.finding.finding == "LSTM+Nd beats Tf+Nd on longer strings of w#w^R")
    assert (row.verdict, row.ours, len(row.beyond)) == (findings.NOT_HERE, (), 2)
    assert row.why.endswith("at most 0.03 is needed")


def test_the_best_of_several_trials_is_one_number():
    claim = {"statistic": "selected", "cell": {"language": "w#w^R", "model": "Tf+Sup"}, "below": {"model": "Tf"}}
    given = {"finding": "x", "results": "context_free/halved", "claim": claim}
    row = findings.judged(findings.Finding.model_validate(given))
    assert (row.verdict, row.why) == (findings.UNDECIDED, "one number")


@pytest.mark.parametrize(("margin", "verdict"), [(0.2, findings.AGREES), (0.4, findings.DISAGREES)])
def test_two_scores_are_compared_with_the_margin(verdicts, margin, verdict):
    (row,) = (row for row in verdicts if row.finding.finding == "stacks help on stack manipulation, ALiBi")
    claim = row.finding.claim.model_copy(update={"margin": margin})  # of 0.305 (0.275 to 0.336)
    again = findings.judged(row.finding.model_copy(update={"claim": claim, "longer": False, "against": claim.score}))
    assert (again.difference, again.verdict) == (row.difference, verdict)


def test_the_published_number_of_a_selected_trial_is_one_number(monkeypatch):
    monkeypatch.setattr(findings, "configuration_differences", lambda *_: ())
    source, cell = "Discrete Transformer, section 7.1, recall", {"model": "hard, weight 0.1"}
    given = {"finding": "x", "results": "discrete_transformer/stack_language", "number": source, "cell": cell}
    row = findings.judged(findings.Finding.model_validate(given))
    assert (row.verdict, row.why, len(row.ours)) == (findings.UNDECIDED, "one number", 1)


def test_the_arena_judges_findings_that_it_alone_decides(verdicts):
    rows = {row.finding.finding: row for row in verdicts if row.finding.arena is not None}
    orders = {
        (row.verdict, write_page.decided(row).verdict, arena.verdict)
        for row in rows.values()
        if (arena := findings.in_arena(row.finding)) is not None
    }
    opposite = {findings.AGREES: findings.DISAGREES, findings.DISAGREES: findings.AGREES}
    for own, shown, arena in orders:
        alone = arena in opposite and own not in opposite
        assert shown == (arena if alone else findings.UNDECIDED if opposite.get(own) == arena else own)
    assert len({arena for *_, arena in orders}) > 1
    row = rows["Tf+Sup beats Tf on Dyck"]
    arena = findings.in_arena(row.finding)
    assert arena.ours[0].interval is not None
    contrary = write_page.decided(replace(row, verdict=opposite[arena.verdict]))
    assert (contrary.verdict, contrary.ours) == (findings.UNDECIDED, row.ours)
    assert arena.difference in contrary.why


def test_lengths_beyond_training_are_apart():
    """Weighted by symbols, with those that end strings."""
    trial = {
        "cell": {"model": "Tf"}, "seed": 3,
        "scores": {"test": {"cross_entropy_difference": 0.5, "data": {"train_lengths": [40, 80]}, "by_length": [
            {"length": length, "num_sequences": n, "cross_entropy_difference": score}
            for length, n, score in ((80, 9, 0.1), (81, 1, 0.2), (99, 2, 0.5))
        ]}},
    }  # fmt: skip
    results = Stored("none", {})
    results.__dict__["trials"] = [trial]
    assert findings.longer(results, {"model": "Tf"}) == {3: pytest.approx((82 * 0.2 + 200 * 0.5) / 282)}
    trial["scores"]["test"]["data"]["train_lengths"] = [40, 100]
    assert findings.longer(results, {"model": "Tf"}) == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_section_shows_a_command_only_if_it_gives_the_settings_of_the_results(name):
    results = stored(name)
    assert bool(results.changes) == (name in EARLIER)
    assert (f"`{results.content['command']}`" in sections.section(name)) == (name not in EARLIER)
    for change in results.changes:
        assert change in sections.section(name)


def test_other_settings_of_a_recipe_are_found():
    content = stored("stack_pointer_text/small").content["settings"]
    same = SweepSettings.model_validate(content)
    cells = [row.cell for row in stored("stack_pointer_text/small").rows]
    assert setting_changes(same, same, cells) == []
    training = {**content["base"].get("training", {}), "max_minutes": 0.5}
    base = {**content["base"], "task": "language_modeling", "training": training}
    other = SweepSettings.model_validate({**content, "seed": 7, "base": base})
    assert "training.max_minutes was None and is now 0.5" in setting_changes(same, other, cells)
    assert "seed was 1 and is now 7" in setting_changes(same, other, cells)
    assert "task was 'masked_language_modeling' and is now 'language_modeling'" in setting_changes(same, other, cells)
    missing = [{**cells[0], "model": "other"}]
    assert setting_changes(same, same, missing) == ["MLM other is no cell of the recipe now"]


def test_published_intervals_are_those_of_population_deviations():
    numbers = [70.1, 71.9, 68.4, 74.0, 69.3]
    published = {"values": [np.mean(numbers)], "deviations": [np.std(numbers)], "seeds": len(numbers)}
    finding = findings.Finding.model_validate({"finding": "x", "published": published})
    (pair,) = figures.pairs([findings.Row(finding, findings.UNDECIDED, "", (findings.Number(70.0),), labels=("Tf",))])
    assert pair.published.interval == pytest.approx(sample_statistics(numbers).interval)


def test_figures_have_every_score_of_a_cell():
    (paper,) = (each for each in findings.papers() if each.page == "hard_coded_attention")
    (table,) = (each for each in paper.tables if each.name == "table 4")
    found = {pair.label: pair for pair in figures.pairs([*map(findings.judged, table.findings)])}
    assert found["hc-all, as in the code, subj_verb_agreement.mt"].published.value == 82.5
    assert found["hc-all, as in the code, np_agreement.mt"].published.value == 53.5
