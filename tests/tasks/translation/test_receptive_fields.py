"""Receptive fields of translation models: against paths, against gradients, and in the training loss."""

from dataclasses import replace

import pytest
import torch

from structattn.settings.training import TrainingSettings
from structattn.support.errors import SettingsError
from structattn.tasks.losses import ReceptiveFieldRegularizer
from structattn.tasks.registry import TASKS
from structattn.tasks.translation.predictions import layer_without_weights, model_inputs, pair_receptive_fields
from structattn.text.batching.pairs import make_pair_batch

HARD = {"encoder": {"layers": "2xhard"}, "decoder": {"layers": "2xhard", "cross_attention": "hard.none"}}
MODELS = {
    "hard": HARD,
    "two streams": {"kind": "two_stream_encoder_decoder", "num_layers": 2},
    "no encoder attention": {
        "encoder": {"layers": "2xnone"},
        "decoder": {"layers": "hard.none", "cross_attention": "hard.hard"},
    },
}


def attended(run, examples=(3,)):
    model, batch = run.model.double(), make_pair_batch(run.prepared.pairs("test"), examples)
    return model, batch, *model.attended_hidden_states(*model_inputs(model, batch))


def paths(weights, layer, position, is_target=True):
    """Sum of the products of weights over all paths down to each input, as {(is_target, input): sum}."""
    if layer == 0:
        return {(is_target, position): 1.0}
    of_layer = weights.decoder[layer - 1] if is_target else (weights.encoder[layer - 1], None)
    steps = [(1.0, layer - 1, position, is_target)]
    for sides, attention in zip((is_target, False), of_layer, strict=True):
        below = layer - 1 if sides else (layer - 1 if not is_target else len(weights.encoder))
        rows = [] if attention is None else attention[0, :, position].tolist()
        steps += [(weight, below, j, sides) for row in rows for j, weight in enumerate(row) if weight]
    total = {}
    for weight, below, j, side in steps:
        for place, product in paths(weights, below, j, side).items():
            total[place] = total.get(place, 0.0) + weight * product
    return total


@torch.no_grad()
@pytest.mark.parametrize("model", MODELS)
def test_fields_of_choices_are_what_paths_reach(translation_run, model):
    _, _, _, weights = attended(translation_run(**MODELS[model]))
    fields = pair_receptive_fields(weights, None, None)
    for i in range(fields.target.shape[1]):
        reached = paths(weights, len(weights.decoder), i)
        for is_target, field in ((True, fields.target), (False, fields.source)):
            assert [float(bool(reached.get((is_target, j)))) for j in range(field.shape[2])] == field[0, i].tolist()


@torch.no_grad()
def test_fields_of_weights_are_sums_up_to_1(translation_run):
    run = translation_run(encoder={"layers": 1}, decoder={"layers": 1, "cross_attention": "softmax"})
    _, _, _, weights = attended(run)
    (inside,), ((own, across),) = weights.encoder, weights.decoder
    inside, own, across = (each[0].sum(0).tolist() for each in (inside, own, across))
    sources, time = range(len(inside)), range(len(own))
    encoder = [[min((j == k) + inside[j][k], 1) for k in sources] for j in sources]
    target = [[min((i == j) + own[i][j], 1) for j in time] for i in time]
    source = [[min(sum(across[i][j] * encoder[j][k] for j in sources), 1) for k in sources] for i in time]
    for found, expected in zip(pair_receptive_fields(weights, None, None), (target, source), strict=True):
        torch.testing.assert_close(found[0], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("streams", [False, True])
def test_outputs_have_gradients_for_inputs_in_their_field_only(translation_run, streams):
    """In evaluation, choices have no gradient, so that only the values of the field are differentiated."""
    run, embedded = translation_run(**MODELS["two streams" if streams else "hard"]), {}

    def keep(name):
        def hook(_module, _inputs, output):
            content = output.semantic if streams else output
            embedded[name] = content

        return hook

    run.model.source.register_forward_hook(keep("source"))
    run.model.target.register_forward_hook(keep("target"))
    _, _, x, weights = attended(run)
    fields = pair_receptive_fields(weights, None, None)
    for i in range(x.shape[1]):
        gradients = torch.autograd.grad(x[0, i].square().sum() + x[0, i, 0], [embedded["target"], embedded["source"]],
                                        retain_graph=True)  # fmt: skip
        for gradient, field in zip(gradients, fields, strict=True):
            assert ((gradient[0] != 0).any(-1) == (field[0, i] > 0)).all()


@pytest.mark.parametrize("own_position", [True, False])
def test_the_regularizer_of_a_batch_is_the_sum_over_its_pairs(translation_run, own_position):
    run = translation_run(dropout=0.0)
    task = TASKS["translation"].build(run.prepared, run.settings)
    regularizer = ReceptiveFieldRegularizer(0.3, own_position=own_position)
    regularized = replace(task, criterion=replace(task.criterion, receptive_field=regularizer))
    model, batch, *_ = attended(run, (0, 1, 2))
    difference = regularized.loss_sum(model, batch) - task.loss_sum(model, batch)
    total = 0.0
    for example in batch.examples:
        weights = attended(run, (example,))[3]
        target, source = pair_receptive_fields(weights, None, None)
        total += (target.sum() + source.sum()).item() - (0 if own_position else target.shape[1])
    assert difference.item() == pytest.approx(0.3 * total, rel=1e-9)
    moved = torch.autograd.grad(difference, model.encoder.blocks[0].attention.layer.projection.weight)[0]
    assert moved.abs().max() > 0


def test_training_reads_the_regularizer_from_settings(translation_run):
    run = translation_run()
    settings = run.settings.model_copy(
        update={"training": TrainingSettings(batches={"kind": "pairs"}, receptive_field_weight=0.1)}
    )
    criterion = TASKS["translation"].build(run.prepared, settings).criterion
    assert criterion.receptive_field == ReceptiveFieldRegularizer(0.1)


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        ({"encoder": {"layers": "1.superposition-3"}}, "encoder layer 1"),
        ({"decoder": {"layers": "1+stack_pointer"}}, "decoder layer 0"),
        (HARD, None),
    ],
)
def test_layers_without_weights_are_refused(translation_run, model, missing):
    run = translation_run(**model)
    task = TASKS["translation"].build(run.prepared, run.settings)
    regularized = replace(task, criterion=replace(task.criterion, receptive_field=ReceptiveFieldRegularizer(0.3)))
    network, batch, _, weights = attended(run)
    assert layer_without_weights(network, weights) == missing
    if missing is not None:
        with pytest.raises(SettingsError, match=f"receptive_field_weight: {missing} returns no attention weights"):
            regularized.loss_sum(network, batch)
