"""Recurrent language models: sizes, refusals, <bos>, precisions, explanation, weights."""

import math

import pytest
import torch
from torch.nn import functional as F

from structattn.models.builders.models import build_model
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError

VOCABULARY = 7  # <pad>, <bos>, <eos> and four symbols
STACKS = ["superposition-3", "stratified-3", "nondeterministic-2-2-3"]
DEEP = {"num_layers": 3, "learned_initial_state": True, "tied_embeddings": True, "dropout": 0.1}
SYSTEMS = {
    "lstm": {"kind": "lstm"},
    "deep lstm": {"kind": "lstm", **DEEP},
    "deep rnn, superposition": {"kind": "rnn", "stack": "superposition-3", **DEEP},
    "deep lstm, joined": {"kind": "lstm", "stack": "nondeterministic-2-2-3", "join_reading": True, **DEEP},
    "rnn, joined": {"kind": "rnn", "stack": "superposition-3", "join_reading": True},
    "rnn": {"kind": "rnn"},
    "rnn, relu": {"kind": "rnn", "activation": "relu"},
    "lstm, embedded": {"kind": "lstm", "embedding_size": 4, "stack": "superposition-20"},
    **{f"lstm, {stack}": {"kind": "lstm", "stack": stack} for stack in STACKS},
    **{f"rnn, {stack}": {"kind": "rnn", "stack": stack} for stack in STACKS},
    "rnn, as in a code": {
        "kind": "rnn",
        "activation": "relu",
        "stack": {"attention": "superposition", "stack_embedding_size": 8, "pushed_activation": "none", "depth": 2},
    },
}


def settings(hidden_size=6, **changes):
    tree = {"hidden_size": hidden_size, **changes}
    return resolve_settings({"task": "formal_language", "data": "prepared", "model": tree}).model


def built(name, dtype=torch.float64, **changes):
    torch.manual_seed(3)
    model = build_model(settings(**SYSTEMS[name] | changes), VOCABULARY).to(dtype).eval()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.8, 0.8)
    return model


def tokens(batch=3, time=6, first=1):
    drawn = torch.randint(3, VOCABULARY, (batch, time), generator=torch.Generator().manual_seed(0))
    drawn[:, 0] = first
    return drawn


@pytest.fixture(params=SYSTEMS)
def model(request):
    return built(request.param)


@pytest.mark.parametrize("first", [1, 4])
@pytest.mark.parametrize("steps", [0, 2])
def test_a_step_refuses_a_batch_that_is_not_that_of_the_state(model, steps, first):
    ids, state = torch.full((4,), first), model.initial_state(3)
    for _ in range(steps):
        _, state = model.step(ids[:3], state)
    for batch in (0, 1, 4):
        with pytest.raises(ValueError, match=f"the step has batch size {batch}; expected 3, the state's"):
            model.step(ids[:batch], state)


@pytest.mark.parametrize("wrong", [[7, 2], [-1, 2]], ids=str)
def test_lengths_out_of_range_are_refused(model, wrong):
    for first in (1, 4):
        with pytest.raises(ValueError, match=f"lengths range from {min(wrong)} to {max(wrong)}; expected 0 to 6"):
            model(tokens(batch=2, first=first), torch.tensor(wrong))


@pytest.mark.parametrize("cell", ["lstm", "rnn"])
def test_layers_and_the_learned_start_are_torchs(cell):
    """Three layers of torch's own networks, with their second bias 0, from tanh(p), without a stack."""
    lm, ids = built("deep lstm") if cell == "lstm" else built("deep rnn, superposition", stack=None), tokens()
    part, size = lm.recurrence, 6
    network = (torch.nn.LSTM if cell == "lstm" else torch.nn.RNN)(size, size, 3, batch_first=True).double()
    with torch.no_grad():
        for layer in range(3):
            getattr(network, f"weight_ih_l{layer}").copy_(part.inputs[layer].weight)
            getattr(network, f"weight_hh_l{layer}").copy_(part.recurrents[layer].weight)
            getattr(network, f"bias_ih_l{layer}").copy_(part.inputs[layer].bias)
            getattr(network, f"bias_hh_l{layer}").zero_()
    start = torch.tanh(part.start)[:, None].repeat(1, 3, 1)
    table = lm.embedding.table.weight
    state = (start, torch.zeros_like(start)) if cell == "lstm" else start
    hiddens = torch.cat([start[-1:].transpose(0, 1), network(table[ids[:, 1:] - 2], state)[0]], 1)
    torch.testing.assert_close(lm(ids), hiddens @ table.T)


def test_a_joined_reading_is_seen_at_once_and_otherwise_one_step_later():
    """The gradient of the logits after t tokens with respect to the pushed vectors' weights, t = 1 and 2."""
    for joined, reached in ((True, [False, True, True]), (False, [False, False, True])):
        lm = built("deep lstm, joined", join_reading=joined)
        logits = lm(tokens(batch=1, time=3))
        weight = lm.recurrence.stack_projection.weight
        for t, expected in enumerate(reached):
            (gradient,) = torch.autograd.grad(logits[0, t].square().sum(), weight, retain_graph=True, allow_unused=True)
            assert (gradient is not None and bool(gradient.any())) == expected


def test_dropout_acts_on_inputs_between_layers_and_on_outputs():
    torch.manual_seed(1)
    lm = build_model(settings(400, kind="lstm", **DEEP | {"dropout": 0.5}), VOCABULARY).train()
    hiddens = lm.hidden_states(tokens(batch=1, time=2))
    assert ((hiddens == 0).double().mean((0, 2)) - 0.5).abs().max() < 0.1
    assert not torch.equal(lm(tokens()), lm(tokens()))
    assert torch.equal(lm.eval()(tokens()), lm(tokens()))


SYMBOLS = {"w#w^R": 3, "ww^R": 2, "w a^p w^R": 2, "Dyck": 4, "Hardest CFL": 7}
LARGE_PDA = {"w a^p w^R", "Hardest CFL"}
COUNTS = {
    "w#w^R": (42_004, 41_402, 31_138),
    "ww^R": (41_503, 40_936, 30_817),
    "w a^p w^R": (41_503, 40_936, 41_482),
    "Dyck": (42_505, 41_868, 31_459),
    "Hardest CFL": (44_008, 43_266, 43_087),
}


@pytest.mark.parametrize("task", SYMBOLS)
def test_published_parameter_counts(task):
    """DuSell & Chiang (2024), Table 5."""
    states = 3 if task in LARGE_PDA else 2
    systems = [
        {"hidden_size": 100},
        {"hidden_size": 93, "stack": "superposition-10"},
        {"hidden_size": 64, "stack": f"nondeterministic-{states}-3-5"},
    ]
    counts = []
    for system in systems:
        model = build_model(settings(kind="lstm", **system), SYMBOLS[task] + 3)
        counts.append(sum(parameter.numel() for parameter in model.parameters()))
    assert tuple(counts) == COUNTS[task]


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_steps_in_half_precision(name, dtype):
    lm, ids = built(name, torch.float32), tokens()
    expected = lm(ids)[:, -1]
    state = lm.to(dtype).initial_state(3)
    for t in range(6):
        logits, state = lm.step(ids[:, t], state)
    assert logits.dtype == dtype
    torch.testing.assert_close(logits.float(), expected, rtol=0.05, atol=0.1)
    torch.testing.assert_close(lm(ids)[:, -1].float(), expected, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("model", [name for name in SYSTEMS if "deep" not in name and "joined" not in name],
                         indirect=True)  # fmt: skip
def test_the_first_symbol_is_predicted_from_the_bias_alone(model):
    assert torch.equal(model(tokens())[:, 0], model.output.bias.expand(3, -1))
    assert model(tokens(first=4))[:, 0].ne(model.output.bias).all()


def test_a_step_refuses_texts_that_begin_in_different_ways(model):
    with pytest.raises(ValueError, match="some sequences begin with <bos> and others do not"):
        model.step(torch.tensor([1, 5, 1]), model.initial_state(3))


def test_an_lstm_is_torchs():
    lm, ids = built("lstm"), tokens(first=4)
    network = torch.nn.LSTM(4, 6, batch_first=True).double()
    recurrence = lm.recurrence
    with torch.no_grad():
        network.weight_ih_l0.copy_(recurrence.input.weight)
        network.weight_hh_l0.copy_(recurrence.recurrent.weight)
        network.bias_ih_l0.copy_(recurrence.input.bias)
        network.bias_hh_l0.zero_()
    expected = lm.output(network(F.one_hot(ids - 3, 4).double())[0])
    torch.testing.assert_close(lm(ids), expected)


@pytest.mark.parametrize("name", [name for name in SYSTEMS if "stack" in SYSTEMS[name]])
@pytest.mark.parametrize("first", [1, 4])
def test_explanations_of_stacks(name, first):
    lm, ids, lengths = built(name), tokens(first=first), torch.tensor([6, 2, 4])
    (record,) = lm.explain(ids, lengths)
    begins, bottom = int(first == 1), record.first_source
    assert record.weights.shape == (3, 1, 6, 6 + bottom)
    assert record.sublayer == "stack"
    assert (record.details["actions"][0, :begins] == 0).all()
    assert (record.details["actions"][1, 2:] == 0).all()
    assert (record.weights[0, 0, begins:, bottom + begins :].tril() > 0).any()
    assert (record.weights[:, 0, :, bottom:].triu(1) == 0).all()
    assert (record.weights[:, 0, :, bottom : bottom + begins] == 0).all()
    # What is read is what the weights say, of the vectors that were pushed.
    state, hiddens = lm.recurrence.initial_state(1), []
    for token in ids[:1, begins:].unbind(1):
        state = lm.recurrence.step(lm.embedding(token[:, None])[:, 0], state)
        hiddens.append(state.hidden)
    _, pushed = lm.recurrence.stack_inputs(torch.stack(hiddens, 1))
    size = lm.recurrence.stack.vector
    values = torch.cat([lm.recurrence.bottom_vector()[None]] * bottom + [pushed[0]])
    weights = torch.cat([record.weights[0, 0, -1, :bottom], record.weights[0, 0, -1, bottom + begins :]])
    read = state.stack.reading().view(-1, size).sum(0)
    torch.testing.assert_close(read, weights @ values)


@pytest.mark.parametrize("name", [name for name in SYSTEMS if "stack" in SYSTEMS[name]])
def test_explanations_of_no_tokens(name):
    lm, ids = built(name), tokens()[:, :0]
    (record,) = lm.explain(ids)
    assert record.weights.shape == (3, 1, 0, record.first_source)


def test_explanations_in_training_have_the_actions_that_the_stack_took(monkeypatch):
    lm, taken = built("deep rnn, superposition", dropout=0.5).train(), []
    stack_inputs = lm.recurrence.stack_inputs

    def recorded(outputs):
        actions, pushed = stack_inputs(outputs)
        taken.append(actions.softmax(-1))
        return actions, pushed

    monkeypatch.setattr(lm.recurrence, "stack_inputs", recorded)
    (record,) = lm.explain(tokens())
    *steps, _ = taken  # the last are those of the explanation
    torch.testing.assert_close(record.details["actions"][:, 1:], torch.stack(steps, 1))


def test_a_network_without_a_stack_has_nothing_to_explain():
    assert built("lstm").explain(tokens()) == []


def assert_uniform(tensor, bound):
    assert tensor.abs().max() <= bound
    assert tensor.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)


@pytest.mark.parametrize("stack", [None, "superposition-40", "stratified-40", "nondeterministic-2-3-40"])
def test_initial_weights(stack):
    torch.manual_seed(1)
    lm = build_model(settings(50, kind="lstm", stack=stack, init_scale=0.02), 40)
    part = lm.recurrence
    for tensor in (part.input.weight, part.input.bias, part.recurrent.weight):
        assert_uniform(tensor, 0.02)
    assert_uniform(lm.output.weight, math.sqrt(6 / (50 + 38)))
    assert (lm.output.bias == 0).all()
    if stack and stack.startswith("nondeterministic"):
        assert_uniform(part.stack_projection.weight, 0.02)
        assert_uniform(part.stack_projection.bias, 0.02)
        assert 0 < part.bottom.abs().max() <= 0.02
    elif stack:
        assert_uniform(part.stack_projection.weight[part.stack.action_size :], math.sqrt(6 / 90))
        assert part.stack_projection.weight[: part.stack.action_size].abs().max() <= math.sqrt(
            6 / (50 + part.stack.action_size)
        )
        assert (part.stack_projection.bias == 0).all()


def test_xavier_weights_include_those_of_a_nondeterministic_stack():
    torch.manual_seed(1)
    lm = build_model(settings(50, kind="lstm", stack="nondeterministic-2-3-40", weight_init="xavier"), 40)
    part = lm.recurrence
    actions, values = part.stack_projection.weight.split_with_sizes([2 * 3 * (2 * 2 * 3 + 2), 40])
    assert_uniform(actions, math.sqrt(6 / (50 + len(actions))))
    assert_uniform(values, math.sqrt(6 / (50 + 40)))
    assert_uniform(lm.output.weight, math.sqrt(6 / (50 + 38)))
    assert not part.stack_projection.bias.any()
    assert not lm.output.bias.any()
    for tensor in (part.input.weight, part.input.bias, part.recurrent.weight):
        assert_uniform(tensor, 0.1)


def test_xavier_weights_of_actions_only():
    torch.manual_seed(1)
    stack = {"stack": "nondeterministic-2-3-40", "weight_init": "xavier_actions"}
    part = build_model(settings(50, kind="lstm", **stack, **DEEP), 40).recurrence
    actions, values = part.stack_projection.weight.split_with_sizes([2 * 3 * (2 * 2 * 3 + 2), 40])
    assert_uniform(actions, math.sqrt(6 / (50 + len(actions))))
    assert_uniform(values, 0.1)
    assert not part.stack_projection.bias[: len(actions)].any()
    assert_uniform(part.start, 0.1)


def assert_lecun(tensor, inputs):
    """The standard deviation of N(0, σ²) truncated at 2 σ is 0.8796 σ."""
    assert 1.8 * inputs**-0.5 < tensor.abs().max() <= 2 * inputs**-0.5
    assert tensor.std().item() == pytest.approx(0.8796 * inputs**-0.5, rel=0.1)


@pytest.mark.parametrize(("kind", "fan_in"), [("rnn", (47, 50)), ("lstm", (97, 97))])
def test_lecun_weights_are_those_of_haiku(kind, fan_in):
    torch.manual_seed(1)
    lm = build_model(settings(50, kind=kind, stack="superposition-10", weight_init="lecun"), 40)
    part, (outer, inner) = lm.recurrence, fan_in
    assert_lecun(part.input.weight, outer)
    assert_lecun(part.recurrent.weight[:, 50:], outer)
    assert_lecun(part.recurrent.weight[:, :50], inner)
    assert_lecun(part.stack_projection.weight, 50)
    assert_lecun(lm.output.weight, 50)
    assert not part.stack_projection.bias.any()
    assert not lm.output.bias.any()
    forget = torch.zeros(4, 50)
    forget[1] = 1
    assert torch.equal(part.input.bias, forget.flatten() if kind == "lstm" else torch.zeros(50))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"kind": "lstm", "weight_init": "haiku"}, "model.weight_init: expected 'uniform', 'xavier'"),
        ({"kind": "rnn", "stack": {"attention": "superposition", "stack_embedding_size": 8, "depth": 0}}, "depth"),
        ({"kind": "lstm", "join_reading": True}, "join_reading needs a stack"),
        (
            {"kind": "lstm", "stack": {"attention": "nondeterministic", "num_states": 2, "stack_alphabet_size": 3,
             "stack_embedding_size": 5, "pop_offset": 3}},
            "pop_offset is for transformers",
        ),
        ({"kind": "lstm", "tied_embeddings": True, "embedding_size": 4}, "expected no embedding_size"),
        ({"kind": "lstm", "num_layers": 2, "weight_init": "lecun"}, "weight_init: lecun is for one layer"),
        ({"kind": "transformer", "layers": [{"attention": "superposition", "stack_embedding_size": 8, "depth": 9}]},
         r"model\.layers\.0\.depth: no such field"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(model, message):
    with pytest.raises(SettingsError, match=message):
        resolve_settings({"task": "formal_language", "data": "prepared", "model": model})


@pytest.mark.quick("lstm, stratified-3", "rnn", "lstm, nondeterministic-2-2-3")
def test_compiles_whole(model):
    torch.compiler.reset()  # another model of the same class would count as compiled anew
    ids, lengths = tokens(), torch.tensor([6, 2, 4])
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(ids, lengths), model(ids, lengths))


def test_autocast_keeps_the_result_close(model):
    model, ids = model.float(), tokens()
    expected = model(ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = model(ids)
    assert (result - expected).norm() <= 0.05 * expected.norm()
    result.float().sum().backward()
