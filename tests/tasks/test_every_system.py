"""Every system of the papers is built from a few lines of settings, and computes, forwards, backwards and in steps."""

from pathlib import Path

import pytest
import torch
import yaml

from structattn.models import EncoderDecoder, LanguageModel, RecurrentLanguageModel
from structattn.models.builders.models import build_model
from structattn.models.recurrent.deep import DeepRecurrence
from structattn.settings.run import RunSettings, resolve_settings

SYSTEMS = yaml.safe_load(Path(__file__).with_name("systems.yaml").read_text(encoding="utf-8"))
WITHOUT_STEPS = [name for name, model in SYSTEMS.items() if model["kind"] == "masked" or "backward" in str(model)]
RECURRENT = ("lstm", "rnn")
VOCABULARY = 11
LENGTHS = torch.tensor([6, 3])


def settings_of(system):
    task = "masked_language_modeling" if "backward" in str(SYSTEMS[system]) else "language_modeling"
    return resolve_settings({"task": task, "data": "prepared", "model": SYSTEMS[system]})


def built(system):
    """The model of a system; what is wider than 500 is made narrower, so that the tests stay quick."""
    torch.manual_seed(2)
    settings = settings_of(system).model
    if settings.kind not in RECURRENT and settings.d_model > 500:
        settings = settings.model_copy(update={"d_model": 64, "d_ff": 96})
    return build_model(settings, VOCABULARY)


def tokens(time, first):
    drawn = torch.randint(3, VOCABULARY, (2, time), generator=torch.Generator().manual_seed(time))
    drawn[:, 0] = first
    return drawn


def logits_of(model):
    if isinstance(model, EncoderDecoder):
        return model(tokens(5, 3), tokens(6, 1), torch.tensor([5, 2]), LENGTHS)
    return model(tokens(6, 1), LENGTHS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_settings_can_be_written_and_read_again(system):
    settings = settings_of(system)
    assert RunSettings.model_validate(yaml.safe_load(settings.to_yaml())) == settings


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_can_be_built_at_its_size(system):
    settings = settings_of(system).model
    with torch.device("meta"):
        model = build_model(settings, 6_000)
    if settings.kind in RECURRENT:
        part = model.recurrence
        first = part.recurrents[0] if isinstance(part, DeepRecurrence) else part.recurrent
        assert first.in_features >= part.hidden_size == SYSTEMS[system]["hidden_size"]
        return
    table = next(module for module in model.modules() if isinstance(module, torch.nn.Embedding))
    assert table.embedding_dim == SYSTEMS[system]["d_model"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_forward_and_backward(system):
    model = built(system)
    logits = logits_of(model)
    assert logits.shape == (2, 6, VOCABULARY - 2)
    assert logits.isfinite().all()
    torch.log_softmax(logits, -1)[..., 3].sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    without = [name for name, gradient in gradients.items() if gradient is None]
    assert all("syntactic" in name for name in without)  # the last layer of that stream leads nowhere
    assert all(gradient.isfinite().all() for gradient in gradients.values() if gradient is not None)


@torch.no_grad()
@pytest.mark.parametrize("system", [system for system in SYSTEMS if system not in WITHOUT_STEPS])
def test_step_by_step_equals_the_whole(system):
    model = built(system).eval()
    ids = tokens(6, 1)
    if isinstance(model, LanguageModel | RecurrentLanguageModel):
        whole, state = model(ids), model.initial_state(2)
    else:
        source, lengths = tokens(5, 3), torch.tensor([5, 2])
        whole, state = model(source, ids, lengths), model.initial_state(source, lengths)
    for t in range(6):
        logits, state = model.step(ids[:, t], state)
        assert (logits - whole[:, t]).norm() <= 1e-5 * whole[:, t].norm()
