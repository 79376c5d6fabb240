import copy
import dataclasses

import numpy as np
import pytest
import torch

from structattn.models.builders.models import build_model
from structattn.settings.optimizers import AdamWSettings
from structattn.settings.training import TrainingSettings
from structattn.settings.transformer import LanguageModelSettings
from structattn.support.special_tokens import PAD
from structattn.tasks.losses import Criterion, ReceptiveFieldRegularizer
from structattn.training.learner import build_learner
from structattn.training.loop import Update, accumulate_gradients, training_step


def gradients_of(learner):
    return [parameter.grad for parameter in learner.parameters if parameter.grad is not None]


BATCHES = [np.array([0, 1]), np.array([2, 3, 5]), np.array([4])]


def gradients(learner):
    return torch.cat([gradient.flatten() for gradient in gradients_of(learner)])


@pytest.mark.parametrize("loss", ["sequence_sum", "token_mean"])
def test_accumulated_gradients_equal_those_of_one_large_batch(tiny_task, tiny_learner, loss):
    task = tiny_task(loss)
    parts, whole = tiny_learner(dropout=0.0), tiny_learner(dropout=0.0)
    accumulate_gradients(parts, task, [task.batch(indices) for indices in BATCHES])
    accumulate_gradients(whole, task, [task.batch(np.concatenate(BATCHES))])
    torch.testing.assert_close(gradients(parts), gradients(whole), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("number", [0, 1])
def test_batches_that_predict_nothing_have_no_share_in_the_mean_over_tokens(tiny_task, tiny_learner, number):
    task, found, wanted = tiny_task("token_mean"), tiny_learner(dropout=0.0), tiny_learner(dropout=0.0)
    batches = [task.batch(indices) for indices in BATCHES[:number]]
    empty = task.batch(BATCHES[1])
    empty = dataclasses.replace(empty, targets=torch.full_like(empty.targets, PAD))  # as masks may leave it
    accumulate_gradients(found, task, [empty, *batches])
    expected = torch.zeros_like(gradients(found))
    if batches:
        accumulate_gradients(wanted, task, batches)
        expected = gradients(wanted)
    torch.testing.assert_close(gradients(found), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("loss", "count"), [("sequence_sum", 6), ("token_mean", 2 + 3 + 2 + 3 + 5 + 3 + 6)])
def test_loss_is_divided_by_the_number_of_tokens_or_sequences(tiny_task, tiny_learner, loss, count):
    task, learner, plain = tiny_task(loss), tiny_learner(dropout=0.0), tiny_learner(dropout=0.0)
    batches = [task.batch(indices) for indices in BATCHES]
    accumulate_gradients(learner, task, batches)
    (sum(Criterion()(plain.model, batch) for batch in batches) / count).backward()
    torch.testing.assert_close(gradients(learner), gradients(plain), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("max_grad_norm", [None, 0.01, 1e6])
def test_training_step_equals_plain_torch(tiny_task, tiny_learner, max_grad_norm):
    settings = TrainingSettings(optimizer=AdamWSettings(learning_rate=0.5, betas=(0.8, 0.9), weight_decay=0.1))
    task, learner = tiny_task(), tiny_learner(settings, dropout=0.0)
    plain = copy.deepcopy(learner.model)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, betas=(0.8, 0.9), weight_decay=0.1)
    for number, indices in enumerate(BATCHES, start=1):
        batch = task.batch(indices)
        nats = training_step(learner, task, Update(number, [batch], 0.01, max_grad_norm))
        loss = Criterion()(plain, batch) / len(indices)
        assert nats == pytest.approx(loss.item() * len(indices), rel=1e-6)
        optimizer.zero_grad()
        loss.backward()
        if max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(plain.parameters(), max_grad_norm)
        optimizer.step()
    for ours, theirs in zip(learner.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_autocast_covers_every_method_that_the_loss_calls(tiny_task):
    settings = LanguageModelSettings.model_validate({"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": "1"})
    learner = build_learner(build_model(settings, 6), TrainingSettings(precision="bf16"), "cpu")
    seen = set()
    learner.model.output.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    for weight in (0.0, 0.1):  # the regularizer needs the attention weights
        task = dataclasses.replace(tiny_task(), criterion=Criterion(receptive_field=ReceptiveFieldRegularizer(weight)))
        seen.clear()
        accumulate_gradients(learner, task, [task.batch(BATCHES[0])])
        assert seen == {torch.bfloat16}, weight
        assert {gradient.dtype for gradient in gradients_of(learner)} == {torch.float32}


def test_gradients_are_cleared_after_a_step(tiny_task, tiny_learner):
    task, learner = tiny_task(), tiny_learner()
    training_step(learner, task, Update(1, [task.batch(BATCHES[0])], 0.01, 5.0))
    assert gradients_of(learner) == []


def test_the_loss_of_several_batches_is_their_sum(tiny_task, tiny_learner):
    task, learner = tiny_task(), tiny_learner()
    batches = [task.batch(indices) for indices in BATCHES[:2]]
    torch.manual_seed(3)  # dropout draws the same numbers twice
    found = accumulate_gradients(learner, task, batches)
    torch.manual_seed(3)
    expected = [task.loss_sum(learner.model, batch).detach() for batch in batches]
    assert len(expected) == 2
    torch.testing.assert_close(found, expected[0] + expected[1])
