"""Tree regularization of language models: its value, its gradient, when it is added, and what is refused."""

import json

import numpy as np
import pytest
import torch

import structattn
from structattn.attention.projections import split_heads
from structattn.operators import tree_regularization
from structattn.settings.run import resolve_settings
from structattn.settings.training import TreeRegularization
from structattn.settings.transformer import LanguageModelSettings
from structattn.support.errors import DataError, SettingsError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.model import build_model_for
from structattn.tasks.parsing.prepare import prepare_trees
from structattn.tasks.registry import TASKS
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

TREES = """(S (NP (D the) (A old) (N dog)) (VP (V sees) (NP (D the) (N cat))))
(S (NP (D the) (N cat)) (VP (V sleeps)))
(S (N cats))
(S (NP (D the) (N cat) (PP (P by) (NP (D the) (A old) (N door)))) (VP (V sees) (N dogs)))
"""
MODEL = {"layers": 3, "d_model": 16, "d_ff": 8, "num_heads": 4, "dropout": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("trees")
    (path / "trees").write_text(TREES)
    files = {"train": path / "trees", "valid": path / "trees"}
    prepare_trees(path / "data", files, tokenizer=TokenizerSettings("bpe", False, 12), layout="sentences")
    return path / "data"


def settings_of(folder, regularization, model=MODEL, **training):
    training = {"batches": {"kind": "tokens", "max_tokens": 999}, "tree_regularization": regularization, **training}
    return resolve_settings({"task": "language_modeling", "data": str(folder), "model": model, "training": training})


def built(folder, regularization, model=MODEL, **training):
    settings, prepared = settings_of(folder, regularization, model, **training), open_prepared(folder)
    torch.manual_seed(0)
    return TASKS["language_modeling"].build(prepared, settings), build_model_for(settings.model, prepared).eval()


def hidden_states(model, tokens, layer, heads):
    """Return the states of a sentence alone, computed sublayer by sublayer."""
    x = model.embedding(tokens, 0, None)
    for block in model.layers.blocks[:layer]:
        x = block(x)
    block = model.layers.blocks[layer]
    if not heads:
        return block(x)
    weights = block.attention.layer.attend(block.attention.norm(x))[1]
    values = split_heads(block.attention.layer.projection(block.attention.norm(x)), MODEL["num_heads"], parts=3)[2]
    return (weights @ values).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("loss", ["sequence_sum", "token_mean"])
@pytest.mark.parametrize(
    ("regularization", "layer", "size"),
    [
        ({}, 1, 4),
        ({"layer": 3, "share": 0.4, "weight": 2.5}, 2, 6),
        ({"layer": 1, "part": "heads", "share": 0.5}, 0, 8),
    ],
)
def test_the_loss_is_that_of_each_sentence_alone(folder, regularization, layer, size, loss):
    task, model = built(folder, {"every": 3, **regularization}, loss=loss)
    batch = task.batch(np.arange(4))
    splits, starts = task.further[1].trees.trees(range(4))
    of_sentences = []
    for row in range(4):
        length = int(batch.lengths[row])
        states = hidden_states(model, batch.inputs[row : row + 1, :length], layer, "part" in regularization)
        own = splits[splits[:, 0] == row] * torch.tensor([0, 1, 1, 1])
        alone = tree_regularization(states[:, 1:, :size], own, word_starts=starts[row : row + 1, : length - 1])
        of_sentences.append(alone.item())
    assert min(of_sentences) == 0 < sum(of_sentences)  # a word has no splits
    plain = task.loss_sum(model, batch)
    for number in (1, 2, 4):
        torch.testing.assert_close(task.of_update(number).loss_sum(model, batch), plain)
    added = (task.of_update(6).loss_sum(model, batch) - plain).item() / task.loss_denominator(batch)
    mean = np.mean(of_sentences)
    assert added == pytest.approx(regularization.get("weight", 1) * mean, rel=1e-4)
    assert task.validate(model, lambda: None).tree_regularization == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("part", ["coordinates", "heads"])
@pytest.mark.parametrize("accelerate", [False, True])
def test_the_gradient_reaches_the_layer_and_those_before_it(folder, part, accelerate):
    task, model = built(folder, {"layer": 2, "part": part, "every": 1})
    batch, form = task.batch(np.arange(4)), structattn.accelerate(model) if accelerate else model
    named = dict(model.named_parameters())
    gradients = [
        torch.autograd.grad(each.loss_sum(form, batch), [*named.values()], materialize_grads=True)
        for each in (task, task.of_update(1))
    ]
    moved = {name for name, one, two in zip(named, *gradients, strict=True) if not torch.allclose(one, two, atol=1e-6)}
    assert {"embedding.table.weight", "layers.blocks.0.feedforward.layer.output.weight"} <= moved
    assert "layers.blocks.1.attention.layer.projection.weight" in moved
    assert ("layers.blocks.1.feedforward.layer.output.weight" in moved) == (part == "coordinates")
    assert not any(name.startswith(("layers.blocks.2", "layers.final", "output")) for name in moved)


def test_training_lowers_the_loss_and_logs_it(folder, tmp_path):
    logged = {}
    for weight in (1e-9, 5.0):
        training = {"max_epochs": 20, "validate_every": 20, "optimizer": {"learning_rate": 0.01}}
        train(settings_of(folder, {"every": 2, "weight": weight}, **training), tmp_path / f"{weight}")
        *_, validation, _ = (tmp_path / f"{weight}" / "events.jsonl").read_text().splitlines()
        logged[weight] = json.loads(validation)["tree_regularization"]
    assert 0 < logged[5.0] < 0.7 * logged[1e-9]


@pytest.mark.parametrize(
    ("regularization", "model", "message"),
    [
        ({"layer": 4}, MODEL, "layer: 4; expected one of the 3 layers of the model"),
        ({"share": 0.05}, MODEL, "share: 0.05 of 16 numbers; expected at least one"),
        ({"part": "heads", "share": 0.3}, MODEL, "share: 0.3 of 4 heads; expected a share of whole heads"),
        (
            {"part": "heads"},
            {**MODEL, "layers": "superposition-3"},
            "part: 'heads' needs softmax attention in",
        ),
        ({}, {**MODEL, "loops": 2}, "needs model.kind: transformer, without loops"),
        ({}, {"kind": "lstm"}, "needs model.kind: transformer, without loops"),
    ],
)
def test_settings_that_do_not_fit_are_refused(folder, regularization, model, message):
    with pytest.raises(SettingsError, match=rf"training\.tree_regularization: {message}"):
        settings_of(folder, regularization, model)


def test_a_share_is_the_decimal_number_that_was_written():
    model = LanguageModelSettings(**MODEL | {"d_model": 100, "num_heads": 25})
    assert TreeRegularization(share=0.29).size(model) == 29
    heads = TreeRegularization(part="heads", share=0.56)
    heads.require_fits(model)
    assert heads.size(model) == 56


def test_other_tasks_losses_and_data_are_refused(folder, tmp_path):
    with pytest.raises(SettingsError, match="tree_regularization and receptive_field_weight: expected one of them"):
        settings_of(folder, {}, receptive_field_weight=0.1)
    tree = {"task": "formal_language", "data": "x", "training": {"tree_regularization": {}}}
    with pytest.raises(SettingsError, match=r"training\.tree_regularization: needs the task 'language_modeling'"):
        resolve_settings(tree)
    lines = tmp_path / "lines"
    lines.write_text("the old dog\n")
    prepare_language_modeling(tmp_path / "text", lines, lines)
    with pytest.raises(DataError, match="has no trees; expected sentences of `prepare trees --layout sentences`"):
        built(tmp_path / "text", {})
