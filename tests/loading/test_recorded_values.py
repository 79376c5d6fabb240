"""Values read back from a file of a recording, against the operators: each is called by its definition."""

import importlib
import math
from collections import defaultdict

import numpy as np
import pytest
import torch

from structattn.explorer.recording import record
from structattn.explorer.recording_files import read_recording, write_recording
from structattn.loading.trained_run import TrainedRun
from structattn.operators import (
    nondeterministic_stack_best_run,
    nondeterministic_stack_posteriors,
    nondeterministic_stack_weights,
    receptive_field,
    stack_pointer_weights,
    stratified_stack_weights,
    superposition_stack_weights,
)
from structattn.operators.common.stack_contents import StackContents
from structattn.operators.hard_attention.reference import hard_weights
from structattn.operators.nondeterministic_stack.contents import nondeterministic_stack_contents
from structattn.operators.stratified_stack.reference import stratified_stack_contents
from structattn.operators.superposition_stack.reference import superposition_stack_contents
from structattn.settings.run import resolve_settings
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.model import build_model_for
from structattn.text.folders.prepared import open_prepared

ATTENTION = "structattn.attention"
RECURRENT = "structattn.models.recurrent.language_model"
SIZES = {"d_model": 12, "num_heads": 2, "d_ff": 8}
DEPTHS, TEXT = 6, "(())()"


@pytest.fixture(scope="session")
def dyck(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dyck") / "data"
    prepare_formal_language(folder, "dyck", sizes=FormalLanguageSizes(4, 2, 1, (4, 6), (4, 6)))
    return folder


@pytest.fixture
def recorded(dyck, tmp_path):
    """recorded(model, text) writes a recording of a model of drawn weights, and reads its records back."""

    def make(model, text=TEXT):
        settings = resolve_settings({"task": "formal_language", "data": str(dyck), "model": model})
        prepared = open_prepared(dyck)
        torch.manual_seed(3)
        drawn = build_model_for(settings.model, prepared).eval()
        for parameter in drawn.parameters():
            parameter.data += 0.5 * torch.randn_like(parameter)
        run = TrainedRun(tmp_path, settings, prepared, drawn, 0)
        first = prepared.vocabulary.symbols[3:]
        text = "".join(first["()".index(bracket)] for bracket in text)
        write_recording(tmp_path / "x.json", record(run, [text], depths=DEPTHS))
        (example,) = read_recording(tmp_path / "x.json").examples
        return example.records

    return make


@pytest.fixture
def inputs_of(monkeypatch):
    """inputs_of(module, function) lists the arguments of the calls to come of a function that a module imports."""

    def spy(module, name):
        found, calls = getattr(importlib.import_module(module), name), []

        def called(*arguments, **options):
            calls.append((arguments, options))
            return found(*arguments, **options)

        monkeypatch.setattr(f"{module}.{name}", called)
        return calls

    return spy


def assert_shown(values, expected):
    """The values of a file are float32; the expected ones are computed from the same float32 inputs in float64."""
    np.testing.assert_allclose(values, expected.double().numpy(), rtol=1e-5, atol=1e-6)


def assert_contents(shown, expected: StackContents):
    for name in ("height", "at_least", "positions"):
        assert_shown(getattr(shown, name), getattr(expected, name)[0])
    assert (shown.symbols is None) == (expected.symbols is None)
    if shown.symbols is not None:
        assert_shown(shown.symbols, expected.symbols[0])
        np.testing.assert_allclose(shown.symbols.sum(-1), shown.at_least, atol=1e-6)
    np.testing.assert_allclose(shown.positions.sum(-1), shown.at_least, atol=1e-6)


def test_superposition_stack(recorded, inputs_of):
    calls = inputs_of(f"{ATTENTION}.superposition_stack", "superposition_stack_weights")
    (shown,) = recorded({"layers": "superposition-4", **SIZES})
    actions = calls[0][0][0].double()
    assert_shown(shown.actions, actions[0])
    assert_shown(shown.weights, superposition_stack_weights(actions, implementation="reference")[0])
    assert_contents(shown.contents, superposition_stack_contents(actions, DEPTHS).without_bottom())


@pytest.mark.parametrize("bottom", ["first_token", "learned"])
def test_stack_pointer(recorded, inputs_of, bottom):
    calls = inputs_of(f"{ATTENTION}.stack_pointer", "stack_pointer_weights")
    shown, *_ = recorded({"layers": [{"attention": "stack_pointer", "bottom": bottom}], **SIZES})
    actions = calls[0][0][0].double()
    weights = stack_pointer_weights(actions, implementation="reference")[0]
    contents = superposition_stack_contents(actions, DEPTHS)
    if bottom == "first_token":  # the empty stack is position 0, which is never pushed
        assert not weights[:, 1].any()
        weights, contents = weights[:, [0, *range(2, weights.shape[1])]], contents.without_bottom()
    assert_shown(shown.actions, actions[0])
    assert_shown(shown.weights, weights)
    assert_contents(shown.contents, contents)


@pytest.mark.parametrize(
    "stack", [{"attention": "superposition", "stack_embedding_size": 4}, {"attention": "stack_pointer"}]
)
def test_several_stacks_have_a_record_each(recorded, inputs_of, stack):
    name = f"{stack['attention'].removesuffix('_stack')}_weights".replace("superposition", "superposition_stack")
    calls = inputs_of(f"{ATTENTION}.{name.removesuffix('_weights')}", name)
    shown = recorded({"layers": [{**stack, "num_heads": 2}], **SIZES})[:2]
    actions = calls[0][0][0].double()
    assert [(each.head, each.mechanism) for each in shown] == [(0, stack["attention"]), (1, stack["attention"])]
    for each, own in zip(shown, actions, strict=True):
        contents = superposition_stack_contents(own[None], DEPTHS).without_bottom()
        assert_shown(each.actions, own)
        assert_contents(each.contents, contents)
    assert not np.allclose(shown[0].weights, shown[1].weights)


def test_stratified_stack(recorded, inputs_of):
    calls = inputs_of(RECURRENT, "stratified_stack_weights")
    (shown,) = recorded({"kind": "lstm", "hidden_size": 6, "stack": "stratified-4"})
    strengths = calls[0][0][0].double()
    skipped = len(shown.tokens) - strengths.shape[1]
    assert_shown(shown.actions[skipped:], strengths[0])
    weights = stratified_stack_weights(strengths, implementation="reference")[0]
    assert_shown(shown.weights[skipped:, skipped:], weights)
    assert not shown.weights[:skipped].any()
    expected = stratified_stack_contents(strengths, DEPTHS).without_bottom()
    assert_shown(shown.contents.height[skipped:], expected.height[0])
    assert_shown(shown.contents.positions[skipped:, :, skipped:], expected.positions[0])
    np.testing.assert_allclose(shown.contents.positions.sum(-1), shown.contents.at_least, atol=1e-6)


RECURRENT_MODEL = {"kind": "lstm", "hidden_size": 6, "stack": "nondeterministic-2-2-3"}


@pytest.mark.parametrize(
    "model",
    [{"layers": "nondeterministic-2-2-3", **SIZES}, RECURRENT_MODEL],
    ids=["attention", "recurrent"],
)
def test_nondeterministic_stack(recorded, inputs_of, model):
    calls = inputs_of(f"{ATTENTION}.nondeterministic_stack", "nondeterministic_stack_weights")
    (shown,) = recorded(model)
    transitions = [x.double() for x in calls[0][0]]
    skipped = len(shown.tokens) - transitions[0].shape[1]
    weights = nondeterministic_stack_weights(*transitions, implementation="reference").sum((2, 3))[0]
    kept = np.delete(shown.weights[skipped:], range(1, 1 + skipped), 1)
    assert_shown(kept, weights)
    posteriors = nondeterministic_stack_posteriors(*transitions, implementation="reference")
    assert_shown(shown.actions[skipped:], torch.stack([x.flatten(2).sum(-1) for x in posteriors], -1)[0])
    run = nondeterministic_stack_best_run(*transitions, implementation="reference")
    best = torch.stack([run.actions, run.states, run.symbols], -1)[0]
    np.testing.assert_array_equal(shown.best_run[skipped:], best)
    expected = nondeterministic_stack_contents(*transitions, DEPTHS, definition=True)
    for values, found in zip((expected.height, expected.at_least, expected.symbols),
                             (shown.contents.height, shown.contents.at_least, shown.contents.symbols),
                             strict=True):  # fmt: skip
        assert_shown(found[skipped:], values[0])
    assert_shown(np.delete(shown.contents.positions[skipped:], range(1, 1 + skipped), 2), expected.positions[0])


def stacks_after_each_step(push, replace, pop):
    """Return, after each step, the weight of each stack of (symbol, step of the push), with the state; bottom first."""
    weights, found = {(0, ((0, 0),)): 1.0}, []
    for t, logits in enumerate(zip(push.exp(), replace.exp(), pop.exp(), strict=True), start=1):
        after = defaultdict(float)
        pushes, replacements, pops = (x.tolist() for x in logits)
        for (q, stack), weight in weights.items():
            x, when = stack[-1]
            for r, by_symbol in enumerate(pushes[q][x]):
                for y, p in enumerate(by_symbol):
                    after[r, (*stack, (y, t))] += weight * p
                    after[r, (*stack[:-1], (y, when))] += weight * replacements[q][x][r][y]
            if len(stack) > 1:
                for r, p in enumerate(pops[q][x]):
                    after[r, stack[:-1]] += weight * p
        weights = after
        found.append(dict(after))
    return found


def test_the_contents_shown_of_a_short_text_are_those_of_all_its_stacks(recorded, inputs_of):
    calls = inputs_of(f"{ATTENTION}.nondeterministic_stack", "nondeterministic_stack_weights")
    (shown,) = recorded({"layers": "nondeterministic-2-2-3", **SIZES}, text="()")
    transitions = [x[0].double() for x in calls[0][0]]
    after = stacks_after_each_step(*transitions)
    assert len(after) == len(shown.tokens) == 3
    for t, stacks in enumerate(after):
        total = math.fsum(stacks.values())
        at_least, symbols = np.zeros(DEPTHS), np.zeros((DEPTHS, 2))
        positions, height = np.zeros((DEPTHS, 4)), 0.0
        for (_, stack), weight in stacks.items():
            height += len(stack) * weight / total
            for depth, (symbol, when) in enumerate(reversed(stack)):
                at_least[depth] += weight / total
                symbols[depth, symbol] += weight / total
                positions[depth, when] += weight / total
        contents = shown.contents
        for values, expected in ((contents.height[t], height), (contents.at_least[t], at_least),
                                 (contents.symbols[t], symbols), (contents.positions[t], positions)):  # fmt: skip
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


def test_hard_attention_and_its_receptive_field(recorded, inputs_of):
    calls = inputs_of("structattn.attention.hard", "hard_attention")
    *heads, field = recorded({"layers": "hard.hard", **SIZES})
    layers = []
    for arguments, _ in calls[:2]:
        scores = arguments[0].double()
        future = torch.ones(scores.shape[2:]).triu(1).bool()
        layers.append(hard_weights(scores.masked_fill(future, -torch.inf)))
    for layer in (0, 1):
        for head in (0, 1):
            (shown,) = (each for each in heads if (each.layer, each.head) == (layer, head))
            assert_shown(shown.weights, layers[layer][0, head])
    assert_shown(field.weights, receptive_field(layers)[0])


def test_gaussian_attention_and_its_receptive_field(recorded, inputs_of):
    calls = inputs_of("structattn.attention.mixed_heads", "gaussian_weights")
    *heads, field = recorded({"layers": "gaussian", **SIZES})
    options = calls[0][1]
    time = len(field.tokens)
    for head, offset in enumerate(options["offsets"]):
        for i in range(time):
            for j in range(i + 1):
                density = math.exp(-0.5 * (j - i - offset) ** 2) / math.sqrt(2 * math.pi)
                assert heads[head].weights[i, j] == pytest.approx(density, rel=1e-5)
        assert not np.triu(heads[head].weights, 1).any()
    weights = torch.stack([torch.from_numpy(each.weights.astype(np.float64)) for each in heads])[None]
    assert_shown(field.weights, receptive_field([weights])[0])


def test_softmax_attention(recorded, inputs_of):
    calls = inputs_of(f"{ATTENTION}.heads", "softmax_attention")
    *heads, field = recorded({"layers": 1, **SIZES})
    (query, key, *_), _ = next(call for call in calls if call[1].get("return_weights"))
    scores = query.double() @ key.double().transpose(2, 3) / math.sqrt(query.shape[3])
    weights = scores.masked_fill(torch.ones(scores.shape[2:]).triu(1).bool(), -torch.inf).softmax(-1)
    for shown, expected in zip(heads, weights[0], strict=True):
        assert_shown(shown.weights, expected)
    assert_shown(field.weights, receptive_field([weights])[0])
