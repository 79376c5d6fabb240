"""Pairs of strings as batches, losses and accuracies."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from structattn.explorer.recording_files import read_recording
from structattn.explorer.run_analysis import analyze
from structattn.loading.evaluate import evaluate
from structattn.loading.runs import load
from structattn.models.builders.models import build_model
from structattn.settings.run import RunSettings, resolve_settings
from structattn.support.errors import DataError, SettingsError, UsageError
from structattn.support.special_tokens import BOS
from structattn.tasks.position_limits import require_positions_fit
from structattn.tasks.registry import TASKS
from structattn.tasks.transductions import evaluate as scoring
from structattn.tasks.transductions.batches import batch_of, stored_pairs
from structattn.tasks.transductions.evaluate import length_counts, num_correct_greedy
from structattn.tasks.transductions.predict import TransductionExplainer
from structattn.tasks.transductions.prepare import (
    TransductionSizes,
    input_ids,
    output_ids,
    prepare_transduction,
    vocabulary_of,
)
from structattn.tasks.transductions.registry import transduction
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

SIZES = TransductionSizes((2, 5), (6, 7), valid_per_length=3, test_per_length=2)


@pytest.fixture
def folder(tmp_path):
    prepare_transduction(tmp_path / "data", "stack-manipulation", sizes=SIZES)
    return tmp_path / "data"


def task_of(folder, form="masked", seed=1, **training):
    training = {"batches": {"batch_size": 4}, "loss": "token_mean", **training}
    tree = {"task": f"{form}_transduction", "data": folder, "training": training, "seed": seed}
    return TASKS[tree["task"]].build(open_prepared(folder), RunSettings.model_validate(tree))


def words(vocabulary, ids):
    return " ".join(vocabulary.symbols[i] for i in ids)


def test_the_two_forms_ask_for_the_same(folder):
    vocabulary = open_prepared(folder).vocabulary
    x, y = (np.array([[vocabulary.id_of[s] for s in text.split()]]) for text in ("a b POP PUSH-a", "a a END a a"))
    batch = batch_of(x, y, vocabulary, "masked")
    assert words(vocabulary, batch.inputs[0]) == "<bos> a b POP PUSH-a" + " <empty>" * 5
    assert words(vocabulary, batch.targets[0]) == "<pad> " * 5 + "a a END a a"
    batch = batch_of(x, y, vocabulary, "masked without <bos>")
    assert words(vocabulary, batch.inputs[0]) == "a b POP PUSH-a" + " <empty>" * 5
    assert words(vocabulary, batch.targets[0]) == "<pad> " * 4 + "a a END a a"
    assert batch.lengths.tolist() == [9]
    batch = batch_of(x, y, vocabulary, "autoregressive")
    assert words(vocabulary, batch.inputs[0]) == "<bos> a b POP PUSH-a <to> a a END a"
    assert words(vocabulary, batch.targets[0]) == "<pad> " * 5 + "a a END a a"
    assert batch.lengths.tolist() == [10]


def test_stored_pairs_are_those_of_the_task(folder):
    prepared = open_prepared(folder)
    found = list(stored_pairs(prepared, "valid"))
    assert [(x.shape, y.shape) for _, x, y in found] == [((3, n), (3, n + 1)) for n in (2, 3, 4, 5)]
    assert [first for first, _, _ in found] == [0, 3, 6, 9]
    task = transduction("stack-manipulation")
    for _, x, y in found:
        for inputs, outputs in zip(x, y, strict=True):
            stack = []
            for symbol in (prepared.vocabulary.symbols[i] for i in inputs):
                stack = stack[:-1] if symbol == "POP" else [*stack, symbol.removeprefix("PUSH-")]
            answer = [*stack[::-1], "END"]
            assert words(prepared.vocabulary, outputs).split()[: len(answer)] == answer
    assert task.name == prepared.header.extra["transduction"]


def test_training_pairs_depend_on_the_seed_and_their_number_only(folder):
    task, again, other = task_of(folder), task_of(folder), task_of(folder, seed=2)
    batches = task.training_batches(3)
    assert len(batches) == 1000
    assert batches[0][0] == 3 * 1000 * 4
    first, second = task.batch(batches[7]), again.batch(batches[7])
    assert torch.equal(first.inputs, second.inputs)
    assert first.examples == tuple(batches[7])
    lengths = [task.batch(indices).inputs.shape[1] for indices in batches[:200]]
    assert sorted(set(lengths)) == [2 * n + 2 for n in (2, 3, 4, 5)]  # <bos>, x, y of n + 1
    assert any(not torch.equal(task.batch(b).inputs, other.batch(b).inputs) for b in batches[:3])


def test_what_is_counted(folder):
    task = task_of(folder)
    batch = task.batch(task.training_batches(0)[0])
    assert task.num_tokens(batch) == (batch.targets != 0).sum()
    assert task.loss_denominator(batch) == task.num_tokens(batch)
    assert task_of(folder, loss="sequence_sum").loss_denominator(batch) == 4


class Oracle(nn.Module):
    """Gives 0.9 to the symbol that a function names for each position, and the rest to all others alike."""

    def __init__(self, classes, answer):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.classes, self.answer = classes, answer

    def _logits(self, wanted):
        probabilities = torch.full((*wanted.shape, self.classes), 0.1 / (self.classes - 1))
        return probabilities.scatter(-1, wanted[..., None], 0.9).log()

    def forward(self, tokens, lengths=None):
        return self._logits(self.answer(tokens))

    def initial_state(self, batch_size):
        return torch.zeros(batch_size, 0, dtype=torch.int64)

    def step(self, tokens, state):
        state = torch.cat([state, tokens[:, None]], dim=1)
        return self._logits(self.answer(state))[:, -1], state

    def explain(self, tokens, lengths=None):
        return []


def test_nats_and_accuracy(folder):
    prepared = open_prepared(folder)
    task, vocabulary = transduction("stack-manipulation"), prepared.vocabulary
    x = np.array([[vocabulary.id_of[s] for s in ("a", "b", "POP")]] * 2)
    y = np.array([[vocabulary.id_of[s] for s in ("a", "END", "a", "a")]] * 2)
    model = Oracle(vocabulary.size - 2, lambda tokens: torch.full_like(tokens, vocabulary.id_of["a"] - 2))
    found = length_counts(model, task, vocabulary, x, y, "masked")
    assert (found.length, found.num_pairs, found.num_tokens) == (3, 2, 8)
    assert (found.num_scored, found.num_correct, found.accuracy) == (4, 2, 0.5)  # "a END" counts, what follows does not
    wrong = 0.1 / (vocabulary.size - 3)
    assert found.loss_sum == pytest.approx(-2 * (3 * math.log(0.9) + math.log(wrong)), rel=1e-5)


def test_accuracy_of_nothing_but_padding_is_1():
    task = transduction("stack-manipulation-padded")
    vocabulary = vocabulary_of(task)
    x, y = ([[vocabulary.id_of[symbol] for symbol in text]] for text in (("a", "POP"), ("PAD",) * 3))
    model = Oracle(vocabulary.size - 2, lambda tokens: torch.full_like(tokens, vocabulary.id_of["a"] - 2))
    found = length_counts(model, task, vocabulary, np.array(x), np.array(y), "masked")
    assert (found.num_scored, found.num_correct, found.accuracy) == (0, 0, 1.0)


def test_greedy_answers_read_themselves():
    task = transduction("reverse-string")
    vocabulary = vocabulary_of(task)
    a, b = vocabulary.id_of["a"], vocabulary.id_of["b"]

    def same_as_before(tokens):
        """Repeats the symbol that it reads; b after anything else."""
        return torch.where((tokens == a) | (tokens == b), tokens, b) - 2

    model = Oracle(vocabulary.size - 2, same_as_before)
    x, y = np.array([[a, b, b]]), np.array([[b, b, a]])
    assert length_counts(model, task, vocabulary, x, y, "autoregressive").num_correct == 2
    assert num_correct_greedy(model, task, vocabulary, x, y) == 2
    x, y = np.array([[b, b, a]]), np.array([[a, b, b]])
    # b is wrong, then a, then b is right
    assert length_counts(model, task, vocabulary, x, y, "autoregressive").num_correct == 1
    assert num_correct_greedy(model, task, vocabulary, x, y) == 2  # b is wrong, then b and b are right


def test_greedy_answers_are_the_same_where_the_whole_is_read_again():
    torch.manual_seed(1)
    task = transduction("stack-manipulation")
    vocabulary = vocabulary_of(task)
    x, y = task.sample(6, 20, np.random.default_rng(1))
    x, y = input_ids(task, x), output_ids(task, vocabulary, y)
    tree = {"kind": "transformer", "d_model": 16, "num_heads": 2, "layers": "2", "weight_init": "xavier"}
    settings = resolve_settings({"task": "autoregressive_transduction", "data": "x", "model": tree})
    model = build_model(settings.model, vocabulary.size).eval()
    prompt = batch_of(x, y[:, :1], vocabulary, "autoregressive").inputs
    assert torch.equal(scoring._greedy_by_steps(model, prompt, 7), scoring._greedy_by_forward(model, prompt, 7))


def test_a_masked_model_without_bos_is_trained_evaluated_and_explained_without_it(folder, tmp_path):
    model = {"kind": "masked", "bos": False, "d_model": 8, "d_ff": 8, "num_heads": 2, "layers": "stack_pointer"}
    training = {"batches": {"batch_size": 4}, "loss": "token_mean", "max_updates": 6, "validate_every": 3}
    tree = {"task": "masked_transduction", "data": str(folder), "model": model, "training": training}
    task = TASKS["masked_transduction"].build(open_prepared(folder), resolve_settings(tree))
    assert (task.batch(np.arange(4)).inputs != BOS).all()
    summary = train(resolve_settings(tree), tmp_path / "run")
    assert evaluate(tmp_path / "run", "valid", "best").cross_entropy == pytest.approx(
        summary.best_cross_entropy, rel=1e-5
    )
    run = load(tmp_path / "run")
    assert run.explain(["a b POP"])[0][0].tokens == ("a", "b", "POP", *["<empty>"] * 4)
    (example,) = read_recording(analyze(tmp_path / "run", "test")).examples
    assert "<bos>" not in example.tokens


@pytest.mark.parametrize(
    ("task", "kind", "positions"),
    [
        ("masked_transduction", "transformer", "sinusoidal"),
        ("masked_transduction", "masked", "sinusoidal"),
        ("autoregressive_transduction", "transformer", "sinusoidal"),
        ("autoregressive_transduction", "transformer", {"kind": "sinusoidal", "direction": "backward"}),
    ],
)
def test_a_run_from_settings_to_scores(folder, tmp_path, task, kind, positions):
    settings = resolve_settings(
        {
            "task": task,
            "data": str(folder),
            "model": {
                "kind": kind,
                "d_model": 8,
                "d_ff": 8,
                "num_heads": 2,
                "layers": "stack_pointer",
                "positions": positions,
            },
            "training": {"batches": {"batch_size": 4}, "loss": "token_mean", "max_updates": 6, "validate_every": 3},
        }
    )
    train(settings, tmp_path / "run")
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert all(0 <= event["accuracy"] <= 1 for event in events if event["event"] == "validation")
    scores = evaluate(tmp_path / "run", "valid", "last")
    last = [event for event in events if event["event"] == "validation"][-1]
    assert scores.cross_entropy == pytest.approx(last["cross_entropy"], rel=1e-5)
    assert scores.accuracy == pytest.approx(last["accuracy"])
    assert (scores.accuracy_greedy is None) == (task == "masked_transduction")
    assert [score.length for score in evaluate(tmp_path / "run", "test").by_length] == [6, 7]
    (example,) = read_recording(analyze(tmp_path / "run", "test")).examples
    heads = [(record.layer, record.sublayer, record.head) for record in example.records]
    assert heads == [(0, "attention", 0), (0, "attention", 1), (0, "stack", None)]
    prepared = open_prepared(folder)
    asked, answer = (text.split() for text in words(prepared.vocabulary, prepared.split("test")[0]).split(" <to> "))
    read = ["<empty>"] * len(answer) if task == "masked_transduction" else ["<to>", *answer[:-1]]
    assert example.tokens == ("<bos>", *asked, *read)
    assert evaluate(tmp_path / "run", "test", batch_tokens=20).accuracy == evaluate(tmp_path / "run", "test").accuracy
    run = load(tmp_path / "run")
    (explained,), (predicted,) = run.explain([" ".join(asked)]), run.predict([" ".join(asked)])
    found = [] if task == "masked_transduction" else ["<to>", *predicted.text.split()[:-1]]
    assert explained[0].tokens[1 + len(asked) :][: len(found)] == tuple(found)


def test_dropout_in_evaluation_changes_the_scores_of_evaluation_only(folder, tmp_path):
    tree = {
        "task": "autoregressive_transduction",
        "data": str(folder),
        "model": {"d_model": 8, "d_ff": 8, "num_heads": 2, "layers": 1, "dropout": 0.5},
        "training": {"batches": {"batch_size": 4}, "max_updates": 1},
    }
    results = []
    for dropout in (False, True):
        run = tmp_path / f"run-{dropout}"
        train(resolve_settings(tree | {"evaluation": {"dropout": dropout}}), run)
        scores = [evaluate(run, "valid", "last") for _ in range(2)]
        assert scores[0] == scores[1]
        results.append(((run / "events.jsonl").read_bytes(), scores[0].cross_entropy, scores[0].accuracy_greedy))
    assert results[0][0] == results[1][0]
    assert results[0][1:] != results[1][1:]


def test_dropout_in_evaluation_is_for_transductions(folder):
    with pytest.raises(SettingsError, match=r"evaluation\.dropout: true needs the task 'masked_transduction'"):
        resolve_settings({"task": "formal_language", "data": str(folder), "evaluation": {"dropout": True}})
    tree = {"task": "autoregressive_transduction", "data": str(folder), "evaluation": {"dropout": True}}
    with pytest.raises(SettingsError, match=r"evaluation\.dropout: true needs a model of this package; .* 'gpt2'"):
        resolve_settings(tree | {"model": {"kind": "gpt2", "d_model": 8, "num_heads": 2, "d_ff": 8}})


def test_other_data_and_batches_are_refused(folder, tmp_path):
    with pytest.raises(SettingsError, match=r"training\.batches\.kind: 'tokens' does not suit pairs"):
        task_of(folder, batches={"kind": "tokens"})
    with pytest.raises(DataError, match="holds data of kind 'transduction'"):
        TASKS["formal_language"].build(open_prepared(folder), RunSettings(task="formal_language", data=folder))
    with pytest.raises(DataError, match="exists and is not empty"):
        prepare_transduction(folder, "reverse-string", sizes=SIZES)
    with pytest.raises(UsageError, match="has no strings of the lengths 1 to 2"):
        prepare_transduction(tmp_path / "x", "solve-equation", sizes=TransductionSizes((1, 2), (6, 7)))
    with pytest.raises(UsageError, match="train_lengths is 3 to 2"):
        TransductionSizes((3, 2))
    with pytest.raises(UsageError, match="test_per_length is 0"):
        TransductionSizes(test_per_length=0)


@pytest.mark.parametrize("damage", [{"transduction": None}, {"transduction": ["x"]}, {"train_lengths": 5}])
def test_a_header_without_its_transduction_is_refused(folder, damage):
    path = folder / "header.json"
    header = json.loads(path.read_text())
    path.write_text(json.dumps({**header, "extra": header["extra"] | damage}))
    with pytest.raises(DataError, match=r"header\.json: expected its transduction, a name, and train_lengths"):
        task_of(folder)


@pytest.mark.parametrize("form", ["masked", "masked without <bos>", "autoregressive"])
def test_the_longest_inputs_may_fill_the_learned_positions(folder, form):
    def settings(max_positions):
        bos = {"masked": {"kind": "masked"}, "masked without <bos>": {"kind": "masked", "bos": False}}.get(form, {})
        model = {**bos, "positions": {"kind": "learned", "max_positions": max_positions}}
        return resolve_settings({"task": f"{form.split()[0]}_transduction", "data": str(folder), "model": model})

    prepared = open_prepared(folder)
    pairs = [(x, y) for _, x, y in stored_pairs(prepared, "test")]
    longest = max(batch_of(x, y, prepared.vocabulary, form).inputs.shape[1] for x, y in pairs)
    require_positions_fit(settings(longest), prepared, ["test"])
    model = build_model(settings(longest).model, prepared.vocabulary.size)
    run = SimpleNamespace(run_dir=Path("run"), settings=settings(longest), prepared=prepared, model=model.eval())
    text = words(prepared.vocabulary, prepared.split("test")[3]).partition(" <to> ")[0]
    assert TransductionExplainer(run).text(text, None, 1).inputs.shape[1] == longest
    with pytest.raises(SettingsError, match=rf"test example \d+ has {longest} tokens"):
        require_positions_fit(settings(longest - 1), prepared, ["test"])
