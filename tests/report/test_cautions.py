"""Warnings beside the scores of several runs."""

from structattn.report.tables import different_ends, ended_in_warmup, few_examples, worse_than_baselines
from structattn.settings.training import TrainingSettings


def result(reason, update):
    return {"reason": reason, "update": update}


def test_runs_that_were_trained_equally_long_give_no_warning():
    assert different_ends({}) is None
    assert different_ends({"a": result("updates", 9)}) is None
    assert different_ends({"a": result("updates", 9), "b": result("updates", 9)}) is None
    assert different_ends({"a": result("early_stopping", 9), "b": result("early_stopping", 4)}) is None


def test_different_ends_are_named():
    ends = different_ends({"a": result("updates", 9), "b": result("time", 9), "c": None})
    assert ends == (
        "these runs were not trained equally long: a ended after 9 updates (updates); b ended after 9 updates (time); "
        "c is in training"
    )
    assert different_ends({"a": result("updates", 9), "b": result("updates", 8)}) is not None


def test_a_model_worse_than_its_best_baseline_is_named():
    baselines = {"unigram": {"cross_entropy": 3.0}, "trigram": {"cross_entropy": 2.0}}
    scores = {
        "good": {"test": {"cross_entropy": 1.9, "baselines": baselines}},
        "bad": {
            "test": {"cross_entropy": 2.5, "baselines": baselines},
            "valid": {"cross_entropy": 9.0, "baselines": None},
        },
    }
    assert worse_than_baselines(scores) == [
        "bad is worse than the trigram baseline on test: cross-entropy 2.5000, baseline 2.0000 nats per token"
    ]


def test_a_run_that_ended_in_its_warm_up_is_warned_of():
    training = TrainingSettings(schedule={"kind": "warmup", "warmup_steps": 200})
    assert ended_in_warmup(training, 200) is None
    warning = ended_in_warmup(training, 40)
    assert "after 40 of 200 warm-up updates" in str(warning)
    limited = training.model_copy(update={"max_epochs": None, "max_minutes": 1.5, "early_stopping_patience": None})
    assert str(ended_in_warmup(limited, 40)).endswith("or train for longer (training.max_minutes)")
    assert ended_in_warmup(TrainingSettings(), 0) is None


def test_a_bootstrap_of_few_examples_is_warned_of():
    assert few_examples(30) is None
    warning = few_examples(3)
    assert "3 examples" in str(warning)
