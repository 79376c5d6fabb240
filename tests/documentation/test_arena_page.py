"""The page of the arena: its sentences and tables follow from the lines of the trials."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "results"))

import arena
from stored import Stored

BANDS = {"0-40": 200, "41-80": 300, "81+": 500}


def proportions(*right):
    return {
        "all": {"trials": 1000, "successes": sum(right)},
        **{
            band: {"trials": count, "successes": each} for (band, count), each in zip(BANDS.items(), right, strict=True)
        },
    }


CHANCE = (100, 150, 250)


def trial(
    right=CHANCE,
    nats=(0.3, 0.4, 0.5),
    seconds=60.0,
    model="Tf",
    language="marked reversal",
    restart=0,
    counts=CHANCE,
):
    members = {
        band: {"num_tokens": 10 * count, "cross_entropy": each + 0.4, "cross_entropy_difference": each}
        for (band, count), each in zip(BANDS.items(), nats, strict=True)
    }
    rules = {"length": proportions(*CHANCE), "counts": proportions(*counts)}
    recognition = {"groups": {"all": proportions(*right)}, "rules": rules}
    return {
        "cell": {"language": language, "model": model},
        "restart": restart,
        "seed": 1 + restart,
        "parameters": 63713,
        "end": {"best_update": 1, "update": 2},
        "commit": None,
        **({} if seconds is None else {"cpu_seconds": seconds}),
        "scores": {"test": {"accuracy": sum(right) / 1000, "recognition": {**recognition, "members": members}}},
    }


def entry(*trials):
    return arena.Entry("Tf", "marked reversal", trials)


@pytest.mark.parametrize(
    ("trials", "sentence"),
    [
        (
            [trial(), trial((104, 155, 252))],
            "Tf does not tell members from negatives better than chance; as a language model it stays 0.3 nats or more "
            "above the bound at the lengths of training.",
        ),
        (
            [trial((150, 160, 255), (0.01, 0.3, 0.3)), trial(nats=(0.2, 0.2, 0.2))],
            "Tf is above chance, but does not solve it: at best 75% within the lengths of training; as a language "
            "model it has learned the distribution at the lengths of training with 1 of 2 seeds, beyond them it is "
            "0.2 nats away or more.",
        ),
        (
            [trial((150, 250, 400))],
            "Tf is above chance, but does not solve it: at best 75% within the lengths of training and 81% beyond the "
            "lengths of training; as a language model it stays 0.3 nats or more above the bound at the lengths "
            "of training.",
        ),
        (
            [trial((200, 200, 250), (0.0, 0.01, 0.01)), trial()],
            "Tf recognizes it at the lengths of training with 1 of 2 seeds, and beyond them with none; as a language "
            "model it has learned the distribution at the lengths of training with 1 of 2 seeds, beyond them too "
            "with 1.",
        ),
        (
            [trial((200, 298, 496)), trial(), trial((200, 297, 494))],
            "Tf recognizes it at five times the lengths of training with 1 of 3 seeds; as a language model it stays "
            "0.3 nats or more above the bound at the lengths of training.",
        ),
    ],
)
def test_a_sentence_says_what_was_learned(trials, sentence):
    assert arena.learned(entry(*trials)) == sentence


def test_a_row_has_intervals_over_seeds_or_over_strings():
    two = arena.row(entry(trial((100, 150, 250)), trial((120, 180, 300), seconds=80.0)))
    # mean of 0.5 and 0.6; half the interval is 12.706 · 0.0707 / √2
    assert two[:4] == ["Tf", "2", "0.550 ± 0.64", "0.550 ± 0.64"]
    assert two[4:] == ["0.300 ± 0", "0.463 ± 0", "0 of 2 [0.00, 0.66]", "0 of 2 [0.00, 0.66]", "70", "63,713"]
    one = arena.row(entry(trial(seconds=None)))
    assert one[2] == "0.500 [0.431, 0.569]"
    assert one[4:6] == ["0.300", "0.463"]
    assert one[8] == "–"


def results_of(trials, **content):
    results = Stored("arena/small", content)
    results.__dict__["trials"] = trials
    return results


def test_trivial_rules_and_added_runs_stand_beside_the_models():
    added = {
        "name": "own", "cell": {"language": "marked reversal", "model": "own"}, "seed": 1, "parameters": 64001,
        "splits": {"test": {"accuracy_within": 1.0, "accuracy_beyond": 0.7, "members_difference_within": 0.01}},
    }  # fmt: skip
    results = results_of([trial()], added=[added])
    section = arena.language_section(results, "marked reversal", arena.entries(results))
    assert "| own (added) | 1 | 1.000 | 0.700 | 0.010 | – | 1 of 1 | 0 of 1 | – | 64,001 |" in section
    assert "| *rule: length* |  | 0.500 [0.431, 0.569] | 0.500 [0.465, 0.535] |" in section
    assert arena.added_rows(results, "Dyck") == []


def test_models_are_compared_with_the_best_rule():
    fair = [entry(trial()), entry(trial((200, 300, 500)))]
    assert arena.best_rule(fair) == ""
    known = {"counts": (180, 150, 250)}
    models = [
        entry(trial((190, 150, 250), **known), trial((170, 150, 251), **known)),
        arena.Entry("LSTM", "marked reversal", [trial((181, 150, 251))]),
        arena.Entry("Tf+Nd", "marked reversal", [trial((150, 150, 250))]),
    ]
    assert arena.best_rule(models) == (
        "- The rule *counts* has 0.900 within and 0.500 beyond. Models above it on average: LSTM within; "
        "Tf, LSTM beyond.\n"
    )
    assert arena.best_rule([entry(trial(counts=(200, 300, 500)))]) == "- The rule *counts* decides it.\n"
    assert "on average: none within; " in arena.best_rule(models[:1])


def test_what_was_not_run_has_its_cost():
    trials = [trial(seconds=100.0, restart=restart) for restart in range(3)]
    text = arena.missing(results_of(trials), arena.entries(results_of(trials)))
    lines = {line.split(" | ")[0].lstrip("| "): line for line in text.splitlines() if line.startswith("| ")}
    assert lines["marked reversal"].startswith("| marked reversal | Tf (2), LSTM (5), ")
    others = 5 * 20 * sum(cost for model, cost in arena.epoch_costs().items() if model != "Tf")
    assert f"| {(2 * 100 + others) / 3600:.1f} |" in lines["marked reversal"]
    everything = 5 * 20 * sum(arena.epoch_costs().values())
    assert lines["Dyck"] == f"| Dyck | all (40) | {everything / 3600:.1f} |"
    assert text.startswith("317 trials, ")
    assert len(lines) == 2 + 8
