"""Recognition as a task: batches, losses, scores, runs."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from structattn.interop.export.formats import export_run
from structattn.loading.evaluate import evaluate
from structattn.loading.runs import load
from structattn.models.depth_stack import DepthStackLayers
from structattn.models.recognition import RecognitionHeads
from structattn.settings.run import resolve_settings
from structattn.settings.training import LABEL_ONLY, StreamBatches
from structattn.support.devices import device_of
from structattn.support.errors import DataError, SettingsError, UsageError
from structattn.support.special_tokens import FIRST_SYMBOL, PAD
from structattn.sweeps.data_preparation import digest_of_data
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.model import build_model_for
from structattn.tasks.recognition.batches import recognition_examples, string_of
from structattn.tasks.recognition.evaluate import compare
from structattn.tasks.recognition.examples import MEMBER
from structattn.tasks.recognition.prepare import RecognitionSizes, language_of, prepare_recognition
from structattn.tasks.registry import TASKS
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

TRANSFORMER = {"d_model": 8, "d_ff": 16, "num_heads": 2, "layers": 1, "dropout": 0.0}
STACK = {**TRANSFORMER, "layers": "1.superposition-4"}
LSTM = {"kind": "lstm", "hidden_size": 6, "embedding_size": 6, "num_layers": 2, "learned_initial_state": True}
BOTH = {"language_modeling": 0.7, "next_symbols": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "copy"
    prepare_recognition(path, "marked-copy", sizes=RecognitionSizes(60, 30, 80, 9, 20, 60))
    return path


@pytest.mark.parametrize("protocol", ["flare", "hard"])
def test_strings_depend_on_the_grammar_and_not_on_the_name_of_its_file(tmp_path, protocol):
    grammars = {"a": "S -> a S b | c | d", "b": "S -> a S b [1/3] | c | d  # the same", "c": "S -> a S b [0.4] | c | d"}
    sizes, digests = RecognitionSizes(60, 20, 20, 9, 12, 14), []
    for name, grammar in grammars.items():
        (tmp_path / f"{name}.cfg").write_text(f"{grammar}\n")
        prepare_recognition(tmp_path / name, str(tmp_path / f"{name}.cfg"), protocol, sizes=sizes)
        digests.append(digest_of_data(tmp_path / name))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("language", "protocol", "digest"),
    [
        ("parity", "hard", "a472b93ac17b02d5"),
        ("dyck", "flare", "0ec41e07c175b795"),
        ("marked-reversal", "hard", "0ae2625dd65a9491"),
        ("repeat-01", "flare", "3b03e4f0260edc33"),
    ],
)
def test_strings_of_named_languages_stay(tmp_path, language, protocol, digest):
    prepare_recognition(tmp_path / "data", language, protocol, sizes=RecognitionSizes(200, 40, 60, 14, 20, 24))
    assert digest_of_data(tmp_path / "data")[:16] == digest


def settings_of(folder, model=TRANSFORMER, **training):
    training = {"batches": {"kind": "tokens", "max_tokens": 64}, **training}
    return resolve_settings({"task": "recognition", "data": str(folder), "model": dict(model), "training": training})


def built(folder, settings):
    prepared = open_prepared(folder)
    torch.manual_seed(0)
    model = build_model_for(settings.model, prepared, recognition=settings.training.recognition)
    return TASKS["recognition"].build(prepared, settings), model.double().eval()


@pytest.mark.parametrize("model", [TRANSFORMER, STACK, LSTM])
@pytest.mark.parametrize("weights", [{}, {"language_modeling": 0.7}, {"next_symbols": 0.3}, BOTH])
def test_the_loss_is_that_of_each_string_alone(folder, model, weights):
    """Each term from the outputs of the model on one string without padding, by the formulas of Butoi et al."""
    task, recognizer = built(folder, settings_of(folder, model, recognition=weights))
    indices = np.arange(40, 52)
    language, sequences = language_of(open_prepared(folder)), open_prepared(folder).split("train")
    edits, total = open_prepared(folder).edits("train"), 0.0
    for index in indices.tolist():
        string, member = string_of(sequences, index), edits[index] == MEMBER
        tokens = torch.tensor([[1, *(FIRST_SYMBOL + symbol for symbol in string)]])
        label, modeling, following = recognizer.output.split(recognizer(tokens)[0])
        accepted = torch.sigmoid(label[-1]).item()
        total -= math.log(accepted if member else 1 - accepted)
        targets = [*(symbol + 1 for symbol in string), 0]  # class 0 is <eos>
        if member and "language_modeling" in weights:
            log_probs = modeling.log_softmax(-1)
            total -= 0.7 * sum(log_probs[t, c].item() for t, c in enumerate(targets)) / len(targets)
        if member and "next_symbols" in weights:
            shares, terms = torch.sigmoid(following), []
            for t, allowed in enumerate(language.next_symbols(string)):
                for symbol in range(len(language.alphabet) + 1):
                    p = shares[t, (symbol + 1) % 4].item()
                    terms.append(-math.log(p if symbol in allowed else 1 - p))
            total += 0.3 * sum(terms) / len(terms)
    batch = task.batch(indices)
    assert task.loss_sum(recognizer, batch).item() == pytest.approx(total, rel=1e-9)
    assert task.loss_denominator(batch) == task.num_tokens(batch) == 12


def test_only_members_have_targets(folder):
    task, _ = built(folder, settings_of(folder, recognition=BOTH))
    batch = task.batch(np.arange(20))
    for label, targets, allowed in zip(batch.labels, batch.targets, batch.next_symbols, strict=True):
        assert bool((targets != PAD).any()) == bool(allowed.any()) == bool(label)


def test_outputs_and_rows_of_embeddings(folder):
    _, model = built(folder, settings_of(folder, LSTM, recognition={"language_modeling": 1}))
    assert isinstance(model.output, RecognitionHeads)
    assert model.embedding.table.weight.shape == (4, 6)  # <eos> and three symbols
    hidden = torch.randn(2, 6, dtype=torch.float64)
    label, modeling, following = model.output.split(model.output(hidden))
    assert torch.equal(modeling, hidden @ model.embedding.table.weight.mT)
    assert label.shape == (2,)
    assert following is None
    assert model.output.label.bias.item() == 0
    _, model = built(folder, settings_of(folder))
    assert len(model.embedding.table.weight) == 4  # <bos> and three symbols


@torch.no_grad()
def test_looped_layers_and_stacks_over_depth_are_those_of_language_models(folder):
    """The label after two loops is that of the layers applied twice, each time to the state and the embeddings."""
    _, looped = built(folder, settings_of(folder, TRANSFORMER | {"loops": 2, "positions": "none"}))
    tokens = torch.tensor([[1, 3, 5, 3]])
    x = looped.embedding(tokens, 0, None)
    block, final = looped.layers.looped.blocks[0], looped.layers.coda.final
    expected = looped.output(final(block(block(x + x) + x)))
    torch.testing.assert_close(looped(tokens), expected)
    _, stacked = built(folder, settings_of(folder, TRANSFORMER | {"depth_stack": {"stack_embedding_size": 4}}))
    assert isinstance(stacked.layers, DepthStackLayers)


def test_gradients_of_recurrent_and_stack_models_reach_all_weights(folder):
    for model in (STACK, LSTM):
        task, recognizer = built(folder, settings_of(folder, model, recognition=BOTH))
        recognizer.train()
        task.loss_sum(recognizer, task.batch(np.arange(30))).backward()
        assert all(parameter.grad is not None for parameter in recognizer.parameters())


@pytest.fixture(scope="module")
def run_dir(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    train(settings_of(folder, STACK, recognition=BOTH, max_epochs=2), path)
    return path


def test_progress_counts_strings(folder, tmp_path, capsys):
    train(settings_of(folder, max_updates=1), tmp_path / "run")
    assert " strings/s" in capsys.readouterr().err


def test_a_run(run_dir, folder):
    scores = evaluate(run_dir, "test", batch_tokens=300)
    assert scores.num_sequences == scores.num_tokens == 80
    run, prepared = load(run_dir), open_prepared(folder)
    sequences, edits = prepared.split("test"), prepared.edits("test")
    texts = [prepared.tokenizer.decode(sequences[index]) for index in range(len(sequences))]
    answers = run.predict(texts)
    right = [(answer.text == "accept") == (each == MEMBER) for answer, each in zip(answers, edits, strict=True)]
    assert scores.accuracy == np.mean(right)
    nats = [-answer.log_probability if good else -math.log1p(-math.exp(answer.log_probability))
            for answer, good in zip(answers, right, strict=True)]  # fmt: skip
    assert scores.cross_entropy == pytest.approx(np.mean(nats), rel=1e-4)
    assert replace(scores.recognition, members=None) == compare(prepared, "test", right)
    require_members(
        scores.recognition.members, run.model, [text for text, each in zip(texts, edits, strict=True) if each == MEMBER]
    )
    stored = json.loads((run_dir / "scores" / "test.json").read_text())
    assert stored["recognition"]["groups"]["all"]["all"]["value"] == scores.accuracy
    assert stored["data"]["language"] == "marked-copy"
    (layers,) = run.explain(["0#0"])
    assert layers
    for refused in (run.score, run.generate):
        with pytest.raises(UsageError, match="task 'recognition' cannot"):
            refused(["0#0"])


def test_the_bound_counts_the_lengths_that_training_members_have(tmp_path):
    prepare_recognition(tmp_path / "hard", "marked-reversal", "hard", sizes=RecognitionSizes(60, 30, 80, 9, 20, 60))
    prepared = open_prepared(tmp_path / "hard")
    (sequences, edits), (training, kinds) = ((prepared.split(x), prepared.edits(x)) for x in ("test", "train"))
    trained = {len(training[index]) for index in np.flatnonzero(kinds == MEMBER).tolist()}
    own = [len(sequences[index]) for index in np.flatnonzero(edits == MEMBER).tolist()]
    own = [length for length in own if length <= 9]
    bound = sum((length // 2) * math.log(2) + math.log(len(trained)) for length in own)
    found = compare(prepared, "test", [True] * len(edits), np.zeros(len(edits))).members["0-9"]
    assert len(trained) < 5
    assert found.lower_bound == pytest.approx(bound / sum(length + 1 for length in own))


def require_members(scores, model, texts):
    """Compare scores of language modeling with those of one member at a time; training members have up to 9 symbols."""
    for low, high, num_lengths in ((0, 9, 5), (10, 20, 1), (21, 60, 1)):
        own = [text for text in texts if low <= len(text) <= high]
        nats = -sum(log_probability(model, text) for text in own)
        bound = sum((len(text) // 2) * math.log(2) + math.log(num_lengths) for text in own)
        band = scores[f"{low}-{high}" if high < 60 else f"{low}+"]
        num_tokens = sum(len(text) + 1 for text in own)
        assert (band.num_sequences, band.num_tokens) == (len(own), num_tokens)
        assert band.cross_entropy == pytest.approx(nats / num_tokens, rel=1e-4)
        assert band.lower_bound == pytest.approx(bound / num_tokens)
        assert band.lower_bound_num_lengths == num_lengths
        assert band.cross_entropy_difference == pytest.approx((nats - bound) / num_tokens, rel=1e-3)


@torch.no_grad()
def log_probability(model, text):
    """Return log p(text <eos>); class 0 is <eos>, and symbols are 0, 1 and #."""
    symbols = ["01#".index(each) for each in text]
    ids, device = [1, *(FIRST_SYMBOL + symbol for symbol in symbols)], device_of(model)
    outputs = model.output.split(model(torch.tensor([ids], device=device))[0])
    classes = torch.tensor([*(symbol + 1 for symbol in symbols), 0], device=device)
    return outputs.language_modeling.double().log_softmax(-1).gather(1, classes[:, None]).sum().item()


def test_other_libraries_have_no_form_for_labels(run_dir, tmp_path):
    for form in ("huggingface", "onnx"):
        with pytest.raises(UsageError, match=f"task: recognition cannot be exported to {form}: its outputs are labels"):
            export_run(load(run_dir), form, tmp_path / form)
        assert not (tmp_path / form).exists()


def test_groups_and_rules(folder):
    prepared = open_prepared(folder)
    edits, lengths = prepared.edits("test"), prepared.split("test").lengths
    scores = compare(prepared, "test", [True] * len(edits))
    counts = {name: each["all"].trials for name, each in scores.groups.items()}
    assert counts["all"] == len(edits) == scores.rules["shape"]["all"].trials
    assert counts["members"] == (edits == MEMBER).sum()
    assert counts["uniform negatives"] == (edits == 0).sum()
    assert counts["edited negatives"] == (edits > 0).sum()
    language = language_of(prepared)
    strings = [string_of(prepared.split("test"), index) for index in range(len(edits))]
    shaped = [language.has_shape(string) for string in strings]
    well_shaped = sum(ok and each != MEMBER for ok, each in zip(shaped, edits, strict=True))
    assert counts.get("well-shaped negatives", 0) == well_shaped
    assert scores.rules["shape"]["all"].successes == len(edits) - well_shaped
    assert scores.groups["all"]["10-20"].trials == ((lengths > 9) & (lengths <= 20)).sum()
    assert [*scores.groups["all"]] == ["all", "0-9", "10-20", "21+"]


def test_validation_is_on_the_chosen_split(folder):
    prepared = open_prepared(folder)
    for split in ("valid", "valid-long"):
        task, model = built(folder, settings_of(folder, recognition={"validation": split}))
        scores = task.validate(model.float(), lambda: None)
        assert scores.num_sequences == len(prepared.split(split))
        (examples,) = task.validation.args
        assert examples.edits.tolist() == prepared.edits(split).tolist()


def test_errors(folder, tmp_path):
    prepared = open_prepared(folder)
    with pytest.raises(SettingsError, match=r"training\.recognition: needs the task 'recognition'"):
        resolve_settings({"task": "language_modeling", "data": "x", "training": {"recognition": BOTH}})
    with pytest.raises(SettingsError, match=r"training\.batches\.kind: 'stream'; recognition needs"):
        recognition_examples(prepared, "train", StreamBatches(kind="stream"), LABEL_ONLY)
    with pytest.raises(SettingsError, match=r"training\.label_smoothing"):
        TASKS["recognition"].build(prepared, settings_of(folder, label_smoothing={"epsilon": 0.1}))
    for model, message in (
        ({**TRANSFORMER, "tied_embeddings": True}, r"model\.tied_embeddings: recognition ties"),
        ({"kind": "lstm", "hidden_size": 6}, r"expected model\.embedding_size 6, .* got None"),
        ({"kind": "masked"}, r"model\.kind: 'masked'; recognition needs"),
    ):
        settings = settings_of(folder, model, recognition=BOTH)
        with pytest.raises(SettingsError, match=message):
            build_model_for(settings.model, prepared, recognition=settings.training.recognition)
    prepare_formal_language(tmp_path / "dyck", "dyck", sizes=FormalLanguageSizes(4, 2, 1, (4, 6), (4, 6)))
    with pytest.raises(DataError, match="holds data of kind 'formal_language'; recognition needs 'recognition'"):
        TASKS["recognition"].build(open_prepared(tmp_path / "dyck"), settings_of(tmp_path / "dyck"))
