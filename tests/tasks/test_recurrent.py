"""Recurrent models on the tasks: they learn, are scored and explained, and answer in both forms."""

import json

import pytest

from structattn.explorer.recording_files import read_recording
from structattn.explorer.run_analysis import analyze
from structattn.loading.description import describe_model
from structattn.loading.evaluate import evaluate
from structattn.loading.records import action_names
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.training.run_training import train

SYSTEMS = {
    "LSTM 20": {"kind": "lstm", "hidden_size": 20},
    "relu RNN 20": {"kind": "rnn", "hidden_size": 20, "activation": "relu"},
    "LSTM 16: superposition 5": {"kind": "lstm", "hidden_size": 16, "stack": "superposition-5"},
    "LSTM 16: stratified 5": {"kind": "lstm", "hidden_size": 16, "stack": "stratified-5"},
    "LSTM 16: nondeterministic 2-2-3": {"kind": "lstm", "hidden_size": 16, "stack": "nondeterministic-2-2-3"},
    "tanh RNN 16: superposition 5": {"kind": "rnn", "hidden_size": 16, "stack": "superposition-5"},
}


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language") / "data"
    sizes = FormalLanguageSizes(200, 30, 2, (3, 11), (3, 13))
    prepare_formal_language(folder, "marked-reversal", seed=1, sizes=sizes)
    return folder


def settings_for(data, model, task="formal_language", **training):
    fast = {"batches": {"batch_size": 10}, "optimizer": {"learning_rate": 0.01}, "num_threads": 1, **training}
    return resolve_settings({"task": task, "data": str(data), "model": model, "training": fast})


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_run_on_a_formal_language(language, tmp_path, name):
    settings, run = settings_for(language, SYSTEMS[name], max_epochs=5), tmp_path / "run"
    assert describe_model(settings.model) == name
    summary = train(settings, run)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    differences = [event["cross_entropy_difference"] for event in events if event["event"] == "validation"]
    assert 0 < differences[-1] < 0.75 * differences[0]
    assert evaluate(run, "valid", "last").cross_entropy == pytest.approx(
        [event for event in events if event["event"] == "validation"][-1]["cross_entropy"], rel=1e-5
    )
    assert [score.length for score in evaluate(run, "test").by_length] == [3, 5, 7, 9, 11, 13]
    assert summary.best_cross_entropy > 0
    (example,) = read_recording(analyze(run, "test")).examples
    found = [record.mechanism for record in example.records]
    assert found == ([name.split(": ")[1].split()[0]] if ": " in name else [])
    for record in example.records:
        assert record.actions.shape == (len(record.tokens), len(action_names(record.mechanism)))


@pytest.mark.parametrize("task", ["masked_transduction", "autoregressive_transduction"])
@pytest.mark.parametrize("model", [SYSTEMS["relu RNN 20"], SYSTEMS["LSTM 16: superposition 5"]], ids=str)
def test_a_run_on_a_transduction(tmp_path, task, model):
    prepare_transduction(tmp_path / "data", "reverse-string", sizes=TransductionSizes((1, 4), (5, 6), 8, 4))
    settings = settings_for(tmp_path / "data", model, task, max_updates=6, validate_every=3)
    train(settings, tmp_path / "run")
    scores = evaluate(tmp_path / "run", "valid", "last")
    assert 0 <= scores.accuracy <= 1
    assert (scores.accuracy_greedy is None) == (task == "masked_transduction")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"kind": "lstm", "stack": "stack_pointer"}, r"model\.stack: .*'stack_pointer'"),
        ({"kind": "lstm", "stack": "superposition"}, "expected superposition-m"),
        ({"kind": "lstm", "activation": "relu"}, r"model\.activation: no such field"),
        ({"kind": "rnn", "activation": "cube"}, r"model\.activation: .*'cube'"),
        ({"kind": "lstm", "hidden_size": 0}, r"model\.hidden_size"),
        ({"layers": "stratified-3"}, r"model\.layers.*'stratified-3'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(model, message):
    with pytest.raises(SettingsError, match=message):
        settings_for("data", model)


def test_short_and_full_forms_mean_the_same():
    full = {"attention": "nondeterministic", "num_states": 2, "stack_alphabet_size": 3, "stack_embedding_size": 5}
    short = settings_for("data", {"kind": "lstm", "stack": "nondeterministic-2-3-5"}).model
    assert settings_for("data", {"kind": "lstm", "stack": full}).model == short
