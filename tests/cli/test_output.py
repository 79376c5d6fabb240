"""Tables in a pipe and in a narrow terminal: nothing in them is cut."""

from pathlib import Path

import pytest
from rich.table import Table

from structattn.cli.output import literal, print_table
from structattn.cli.scores_table import print_scores
from structattn.tasks.scores import SplitScores

NAME, NUMBER = "nondeterministic-3-3-10, 2 restarts", "4,394.4593"


def table():
    made = Table("run")
    for heading in ("cross-entropy", "bits/character", "perplexity", "difference", "accuracy", "BLEU"):
        made.add_column(heading, justify="right")
    made.add_row(literal(NAME), *[NUMBER] * 6)
    return made


def test_in_a_pipe_a_row_is_a_line(capsys):
    print_table(table())
    (row,) = [line for line in capsys.readouterr().out.splitlines() if NAME in line]
    assert row.count(NUMBER) == 6


@pytest.mark.parametrize("columns", [40, 80])
def test_in_a_terminal_names_are_wrapped_and_numbers_whole(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(table())
    shown = capsys.readouterr().out
    assert shown.count(NUMBER) == 6
    assert "…" not in shown


@pytest.mark.parametrize(
    ("scores", "caption"),
    [
        ({}, "cross-entropy in nats per token, <eos> included"),
        ({"accuracy": 0.9}, "cross-entropy in nats per token"),
        (
            {"accuracy": 0.9, "accuracy_greedy": 0.48},
            "cross-entropy in nats per token; accuracy given the right symbols before, "
            "greedy accuracy given the model's own",
        ),
        (
            {"lower_bound": 0.25, "lower_bound_num_lengths": 4},
            "cross-entropy in nats per token, <eos> included; the bound includes log L nats per string for its length, "
            "one of L",
        ),
        (
            {"lower_bound": 0.25, "lower_bound_num_lengths": 1},
            'cross-entropy in nats per token, <eos> included; the bound of "test" is given the length, which the '
            "model predicts",
        ),
    ],
)
def test_the_caption_says_what_the_scores_are_of(capsys, scores, caption):
    print_scores([(Path("run"), SplitScores("test", 2, 9, 0.5, 1.6, **scores))])
    table, _, below = capsys.readouterr().out.rpartition("┘")
    assert " ".join(below.split()) == caption
    assert ("48.00%" in table) == ("accuracy_greedy" in scores)


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["two", "../one/two", "../one"], ["two", "two", "one"]),
        (["two", "../three/two"], ["one/two", "three/two"]),
        (["."], ["one"]),
        (["..", "."], ["runs", "one"]),
    ],
)
def test_runs_have_the_shortest_names_that_tell_them_apart(capsys, monkeypatch, tmp_path, folders, names):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "runs" / "one")
    print_scores([(Path(folder), SplitScores("test", 2, 9, 0.5, 1.6)) for folder in folders])
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == names
