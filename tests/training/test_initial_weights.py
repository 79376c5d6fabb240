"""A run that starts from the weights of another: what it takes, refuses and records."""

import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file

from structattn.runs.folder import RunFolder
from structattn.settings.run import resolve_settings
from structattn.settings.training import Budget
from structattn.support.errors import CheckpointError, StructattnError, UsageError
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.model import vocabulary_weights
from structattn.text.folders.prepared import open_prepared
from structattn.training.initial_weights import InitialWeights
from structattn.training.run_training import train

SIZES = FormalLanguageSizes(40, 10, 2, (6, 8), (6, 8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    prepare_formal_language(folder / "dyck", "dyck", sizes=SIZES)
    prepare_formal_language(folder / "more-dyck", "dyck", sizes=SIZES, seed=2)
    prepare_formal_language(folder / "reversal", "marked-reversal", sizes=SIZES)
    train(settings_for(folder / "dyck"), folder / "source")
    return folder


def settings_for(data, layers="1", d_ff=8, rate=0.0, **training):
    """Settings whose learning rate is almost 0, so that the last weights are the first up to 1e-25."""
    training = {"max_updates": 2, "num_threads": 1, "optimizer": {"learning_rate": rate or 1e-30}} | training
    model = {"d_model": 8, "num_heads": 2, "d_ff": d_ff, "layers": layers, "dropout": 0.2}
    return resolve_settings({"task": "formal_language", "data": str(data), "model": model, "training": training})


def same(found, expected):
    return torch.allclose(found, expected, rtol=0, atol=1e-25)


def weights(run):
    (newest,) = sorted((run / "checkpoints").iterdir())[-1:]
    return load_file(newest / "model.safetensors")


def test_all_tensors_of_the_same_model_are_taken_on_other_data_too(folder, tmp_path, caplog):
    settings = settings_for(folder / "more-dyck").model_copy(update={"seed": 5})
    train(settings, tmp_path / "run", initial_run=folder / "source")
    found, source = weights(tmp_path / "run"), weights(folder / "source")
    assert found.keys() == source.keys()
    assert all(same(found[name], source[name]) for name in source)
    card = RunFolder(tmp_path / "run").read_card()["initial_weights"]
    assert (sorted(card["taken"]), card["new"], card["other_shape"], card["unused"]) == (sorted(source), [], {}, [])
    assert (card["run"], card["update"]) == (str(folder / "source"), 2)
    assert f"{len(source)} tensors taken from {folder / 'source'}, update 2" in caplog.text


def test_new_tensors_and_other_shapes_keep_their_initial_values(folder, tmp_path, caplog):
    settings = settings_for(folder / "dyck", "1.superposition-3", d_ff=6)
    train(settings, tmp_path / "run", initial_run=folder / "source")
    train(settings, tmp_path / "fresh")
    found, fresh, source = (weights(run) for run in (tmp_path / "run", tmp_path / "fresh", folder / "source"))
    card = RunFolder(tmp_path / "run").read_card()["initial_weights"]
    assert card["taken"]
    assert card["new"]
    assert card["other_shape"]
    for name, tensor in found.items():
        assert same(tensor, source[name] if name in card["taken"] else fresh[name]), name
    name, (there, here) = next(iter(card["other_shape"].items()))
    assert (there, here) == (list(source[name].shape), list(found[name].shape))
    assert f"{name} {tuple(there)} instead of {tuple(here)}" in caplog.text


def test_of_other_words_all_but_embeddings_and_output_layers_are_taken(folder, tmp_path, caplog):
    """Marked reversal has one symbol more than the strings of brackets; some of their numbers are the same."""
    settings = settings_for(folder / "reversal")
    train(settings, tmp_path / "run", initial_run=folder / "source")
    train(settings, tmp_path / "fresh")
    found, fresh, source = (weights(run) for run in (tmp_path / "run", tmp_path / "fresh", folder / "source"))
    words = {name for name in found if name.startswith(("embedding.", "output."))}
    assert words
    for name, tensor in found.items():
        assert same(tensor, (fresh if name in words else source)[name]), name
    card = RunFolder(tmp_path / "run").read_card()["initial_weights"]
    assert set(card["other_words"]) == words
    assert set(card["taken"]) == found.keys() - words
    assert f"{len(words)} not taken, of other words: embedding.table.weight" in caplog.text


SMALL = {"d_model": 8, "num_heads": 2, "d_ff": 12}
OF_WORDS = {
    "stack": ({"kind": "transformer", **SMALL, "layers": "1.superposition-4"}, {"embedding.table", "output"}),
    "tied": ({"kind": "transformer", **SMALL, "layers": 1, "tied_embeddings": True}, {"embedding.table"}),
    "one-hot": ({"kind": "lstm", "hidden_size": 6, "stack": "superposition-4"}, {"recurrence.input", "output"}),
    "two streams": (
        {"kind": "two_stream", "num_layers": 1, **SMALL},
        {"embedding.semantic.table", "embedding.syntactic.table", "output"},
    ),
}


@pytest.mark.parametrize(("model", "expected"), OF_WORDS.values(), ids=OF_WORDS)
def test_the_weights_of_words(folder, model, expected):
    settings = resolve_settings({"task": "formal_language", "data": str(folder / "dyck"), "model": model}).model
    found = vocabulary_weights(settings, open_prepared(folder / "dyck"))
    assert {name.rpartition(".")[0] for name in found} == expected


def test_what_is_refused_before_anything_is_created(folder, tmp_path):
    reason = r"source: its layers.blocks.0.feedforward.layer.hidden.weight has the shape \(8, 8\), and here \(6, 8\)"
    with pytest.raises(CheckpointError, match=reason):
        train(settings_for(folder / "reversal", d_ff=6), tmp_path / "run", initial_run=folder / "source")
    with pytest.raises(StructattnError, match="missing is not a run folder"):
        train(settings_for(folder / "dyck"), tmp_path / "run", initial_run=folder / "missing")
    train(settings_for(folder / "dyck"), tmp_path / "paused", pause_after=Budget(1, "updates"))
    with pytest.raises(CheckpointError, match=r"not been validated yet; resume it, .* \(.*; not with train --from\)$"):
        train(settings_for(folder / "dyck"), tmp_path / "run", initial_run=tmp_path / "paused")
    assert not (tmp_path / "run").exists()


def test_a_model_without_a_common_tensor_is_refused(tmp_path):
    other = InitialWeights(tmp_path, 2, "digest", {"weight": torch.zeros(3, 2), "table": torch.zeros(2)})
    with pytest.raises(CheckpointError, match="no tensor of this run has the name, shape and dtype of one here"):
        other.load_into(torch.nn.Linear(2, 2))


def test_only_a_new_run_starts_from_another(folder, tmp_path):
    with pytest.raises(UsageError, match="only a new run starts from the weights of another"):
        train(None, folder / "source", resume=True, initial_run=folder / "source")
    with pytest.raises(CheckpointError, match="did not start from the weights of another"):
        train(settings_for(folder / "dyck"), folder / "source", resume="auto", initial_run=folder / "source")


def test_a_run_interrupted_before_its_first_checkpoint_reads_them_again(folder, tmp_path, monkeypatch):
    source, settings = tmp_path / "source", settings_for(folder / "dyck", rate=0.01)
    shutil.copytree(folder / "source", source)
    train(settings, tmp_path / "undisturbed", initial_run=source)
    monkeypatch.setattr("structattn.training.run_training.train_until_done", lambda run, pause_after: sys.exit())
    with pytest.raises(SystemExit):  # as if the process were killed
        train(settings, tmp_path / "run", initial_run=source)
    monkeypatch.undo()
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    train(None, tmp_path / "run", resume=True)
    events = [(tmp_path / name / "events.jsonl").read_bytes() for name in ("run", "undisturbed")]
    assert events[0] == events[1]
    shutil.rmtree(source)
    train(settings_for(folder / "dyck", rate=0.01), source)
    assert train(None, tmp_path / "run", resume=True, limits={"max_updates": 3}).update == 3  # it has a checkpoint now
    with pytest.raises(CheckpointError, match=r"the weights of .*/source from which it started have changed"):
        train(None, tmp_path / "other", resume=True)
