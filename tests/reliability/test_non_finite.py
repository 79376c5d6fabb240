"""A non-finite step changes no state; the error names the module and the examples."""

import hashlib
import math
import random

import pytest
import torch

from structattn.runs.checkpoint import tensors_to_bytes
from structattn.runs.folder import RunFolder
from structattn.settings.run import resolve_settings
from structattn.support.errors import NonFiniteError
from structattn.training.assembly import initial_learner, make_plan, restored_run
from structattn.training.loop import perform_update
from structattn.training.run import StopFlag, state_of

VALUES = [math.nan, math.inf, -math.inf]
PLACES = ["output", "gradient", "parameter gradient", "weight"]


@pytest.fixture
def run(small_settings, tmp_path):
    settings = resolve_settings(
        small_settings("2", gradient_accumulation_steps=2, schedule={"kind": "warmup", "warmup_steps": 9})
    )
    folder = RunFolder(tmp_path)
    plan = make_plan(folder, settings)
    with restored_run(plan, initial_learner(plan), StopFlag()) as run:
        yield run


def digest(run):
    state = state_of(run)
    tensors = hashlib.sha256(tensors_to_bytes(state.weights) + tensors_to_bytes(state.optimizer)).hexdigest()
    rates = [group["lr"] for group in run.learner.optimizers[0].param_groups]
    return tensors, state.generators, state.progress, state.event_log, rates


def plus(output, value):
    """The input projection returns a tuple of queries, keys and values."""
    return tuple(part + value for part in output) if isinstance(output, tuple) else output + value


def inject(run, where, value, generator):
    """Inject the value into every later step; return the expected name in the error and a function that undoes it."""
    kinds = (torch.nn.Linear, torch.nn.LayerNorm)
    names = [name for name, module in run.learner.model.named_modules() if isinstance(module, kinds)]
    name = generator.choice(names)
    module = run.learner.model.get_submodule(name)
    if where == "output":
        handle = module.register_forward_hook(lambda module, inputs, output: plus(output, value))
        return f"the output of {name} ", handle.remove
    if where == "gradient":
        handle = module.register_full_backward_hook(
            lambda module, inputs, outputs: tuple(None if gradient is None else gradient + value for gradient in inputs)
        )
        return "first: ", handle.remove
    parameter = next(module.parameters())
    if where == "parameter gradient":
        handle = parameter.register_hook(lambda gradient: gradient + value)
        return "first: the gradient of ", handle.remove
    before = parameter.detach().clone()
    parameter.data.view(-1)[generator.randrange(parameter.numel())] = value
    return "first: the ", lambda: parameter.data.copy_(before)


@pytest.mark.covering(1)
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("seed", range(5))
def test_non_finite_step_changes_no_state(run, seed, where):
    generator = random.Random(seed)
    for _ in range(generator.randrange(1, 6)):
        perform_update(run)
    number = run.progress.update + 1
    before = digest(run)
    expected, undo = inject(run, where, generator.choice(VALUES), generator)
    with_injection = digest(run)
    with pytest.raises(NonFiniteError, match=rf"update {number} is not finite") as caught:
        perform_update(run)
    assert digest(run) == with_injection
    assert expected in str(caught.value)
    undo()
    assert digest(run) == before
    perform_update(run)
    assert run.progress.update == number


def test_error_for_a_non_finite_step_names_the_examples(run):
    perform_update(run)
    indices = run.order.batches_of(run.progress.epoch)[run.progress.position :][: run.order.gradient_accumulation_steps]
    run.learner.model.register_forward_hook(lambda module, inputs, output: output * math.nan)
    with pytest.raises(NonFiniteError) as caught:
        perform_update(run)
    named = ", ".join(str(index) for batch in indices for index in batch)
    assert f"examples {named}" in str(caught.value)
    assert "nothing was changed" in str(caught.value)


def test_a_norm_that_overflows_is_told_from_a_gradient_that_does(run):
    perform_update(run)
    before = digest(run)
    for parameter in run.learner.model.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(1e20))
    with pytest.raises(NonFiniteError, match="first: the sum of the squares of the gradients, which are finite;"):
        perform_update(run)
    assert digest(run) == before


def test_repeated_update_draws_the_same_random_numbers(run, small_settings, tmp_path):
    """After a rejected step, the next attempt equals the step of an undisturbed run."""
    perform_update(run)
    handle = run.learner.model.register_forward_hook(lambda module, inputs, output: output * math.inf)
    with pytest.raises(NonFiniteError):
        perform_update(run)
    handle.remove()
    perform_update(run)
    settings = resolve_settings(
        small_settings("2", gradient_accumulation_steps=2, schedule={"kind": "warmup", "warmup_steps": 9})
    )
    (tmp_path / "other").mkdir()
    plan = make_plan(RunFolder(tmp_path / "other"), settings)
    with restored_run(plan, initial_learner(plan), StopFlag()) as undisturbed:
        perform_update(undisturbed)
        perform_update(undisturbed)
        assert digest(undisturbed) == digest(run)
