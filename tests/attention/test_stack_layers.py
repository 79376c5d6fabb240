"""What is particular to the two stack layers."""

import copy
import itertools
import math

import pytest
import torch

from structattn.attention import (
    DeltaProductAttention,
    NondeterministicStackAttention,
    StackPointerAttention,
    SuperpositionStackAttention,
)
from structattn.attention.contract import by_steps
from structattn.operators import nondeterministic_stack, superposition_stack


def test_superposition_follows_the_paper():
    layer, x = SuperpositionStackAttention(4, 3), torch.randn(2, 6, 4)
    action_map, vector_map, output_map = layer.xavier_matrices()
    readings = superposition_stack(torch.softmax(x @ action_map.T, -1), torch.sigmoid(x @ vector_map.T))
    torch.testing.assert_close(layer(x), readings @ output_map.T)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 3 * 4 + 2 * 4 * 3


def test_superposition_explains_its_readings():
    layer, x = SuperpositionStackAttention(4, 3), torch.randn(2, 6, 4)
    _, vector_map, output_map = layer.xavier_matrices()
    record = layer.explain(x)
    readings = record.weights[:, 0] @ torch.sigmoid(x @ vector_map.T)
    torch.testing.assert_close(readings @ output_map.T, layer(x))


def test_nondeterministic_follows_the_paper():
    states, symbols, vector = 2, 3, 4
    layer, x = NondeterministicStackAttention(4, states, symbols, vector), torch.randn(2, 6, 4)
    action_map, vector_map, output_map = layer.xavier_matrices()
    logits = (x @ action_map.T).view(2, 6, states, symbols, -1)  # a row for each (q, x)
    pairs = states * symbols
    push = logits[..., :pairs].reshape(2, 6, states, symbols, states, symbols)
    replace = logits[..., pairs : 2 * pairs].reshape(2, 6, states, symbols, states, symbols)
    readings = nondeterministic_stack(
        push, replace, logits[..., 2 * pairs :], torch.sigmoid(x @ vector_map.T), torch.sigmoid(layer.bottom)
    )
    torch.testing.assert_close(layer(x), readings.reshape(2, 6, -1) @ output_map.T)
    actions = states**2 * symbols * (2 * symbols + 1)
    count = sum(parameter.numel() for parameter in layer.parameters())
    assert count == 4 * (actions + vector + pairs * vector) + vector


def test_pop_offset_is_added_to_the_log_weights_of_pops():
    torch.manual_seed(0)
    layer, x = NondeterministicStackAttention(4, 2, 3, 5, pop_offset=1.5).double(), torch.randn(2, 6, 4).double()
    logits = x @ layer.projection.weight.T
    logits[..., layer.action_logits(2)] += 1.5
    rows = logits[..., : layer.sizes[0]].view(2, 6, 2, 3, 14)
    push, replace, pop = rows[..., :6].unflatten(-1, (2, 3)), rows[..., 6:12].unflatten(-1, (2, 3)), rows[..., 12:]
    vectors = torch.sigmoid(logits[..., layer.sizes[0] :])
    readings = nondeterministic_stack(push, replace, pop, vectors, torch.sigmoid(layer.bottom))
    torch.testing.assert_close(layer(x), layer.output(readings.flatten(2)))


@pytest.mark.parametrize("states", [1, 2, 3])
def test_phase_offset_makes_state_0_push_and_the_others_pop(states):
    symbols, offset, names = 2, 1.5, range(states)
    expected = []
    for q, _ in itertools.product(names, range(symbols)):
        for _ in ("push", "replace"):
            expected += [-offset if q == 0 and r > 0 else 0 for r in names for _ in range(symbols)]
        expected += [offset if q > 0 and r > 0 else 0 for r in names]
    layer = NondeterministicStackAttention(4, states, symbols, 3, phase_offset=offset).double()
    plain = NondeterministicStackAttention(4, states, symbols, 3).double()
    assert layer.transition_offsets().tolist() == expected
    logits = torch.randn(2, 6, layer.sizes[0], dtype=torch.float64)
    shifted = plain._transitions(logits + torch.tensor(expected, dtype=torch.float64))
    for ours, theirs in zip(layer._transitions(logits), shifted, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("offsets", [{"pop_offset": 1.5}, {"phase_offset": 1.5}], ids=str)
def test_layer_norm_absorbs_offsets(offsets):
    # The proof is in docs/finding_the_stack.md: u = 1 / γ is orthogonal to what the norm returns without its bias.
    torch.manual_seed(0)
    width = 4
    norm, layer = torch.nn.LayerNorm(width).double(), NondeterministicStackAttention(width, 2, 3, 5).double()
    with_offset = NondeterministicStackAttention(width, 2, 3, 5, **offsets).double()
    layer.load_state_dict(with_offset.state_dict())
    x, shifted = torch.randn(2, 6, width).double(), copy.deepcopy(norm)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, 1.0, -1.0, 2.0]))
        norm.bias.copy_(torch.randn(width))
        u, weight = 1 / norm.weight, layer.projection.weight
        bias = norm.bias + u
        added = torch.cat([with_offset.transition_offsets(), torch.zeros(5)])
        change = (added - weight @ u) / (u @ bias)
        weight += change[:, None] * u
        shifted.weight.copy_(norm.weight)
        shifted.bias.copy_(bias)
    torch.testing.assert_close(layer(shifted(x)), with_offset(norm(x)))


def test_nondeterministic_vectors_are_read_whole():
    # With ones for all vectors, each coordinate of the reading sums to 1 over states and symbols.
    layer, x = NondeterministicStackAttention(4, 2, 3, 2), torch.randn(2, 6, 4)
    with torch.no_grad():
        layer.projection.weight[layer.sizes[0] :] = 0
        layer.projection.weight[layer.sizes[0] :, 0] = 1e4
        layer.bottom.fill_(1e4)
        layer.output.weight.copy_(torch.eye(2).repeat(2, 6))
        x[..., 0] = 1
    torch.testing.assert_close(layer(x), torch.ones(2, 6, 4))


def test_activations_of_the_pushed_vector():
    x = torch.randn(1, 1, 4)
    for layer, activation in [
        (SuperpositionStackAttention(4, 3), torch.sigmoid),
        (SuperpositionStackAttention(4, 3, pushed_activation="none"), lambda v: v),
        (NondeterministicStackAttention(4, 1, 1, 3), torch.sigmoid),
        (NondeterministicStackAttention(4, 1, 1, 3, pushed_activation="exp"), torch.exp),
    ]:
        _, values = (
            layer._actions_and_values(x) if hasattr(layer, "_actions_and_values") else layer._logits_and_values(x)
        )
        torch.testing.assert_close(values, activation(x @ layer.xavier_matrices()[1].T))


def test_refusals():
    with pytest.raises(ValueError, match="pushed_activation='exp'; expected 'sigmoid' or 'none'"):
        SuperpositionStackAttention(4, 3, pushed_activation="exp")
    with pytest.raises(ValueError, match="pushed_activation='none'; expected 'sigmoid' or 'exp'"):
        NondeterministicStackAttention(4, 1, 1, 3, pushed_activation="none")
    with pytest.raises(ValueError, match="num_states=0; expected at least 1"):
        NondeterministicStackAttention(4, 0, 1, 3)
    with pytest.raises(ValueError, match="stack_embedding_size=0; expected at least 1"):
        NondeterministicStackAttention(4, 1, 1, 0)
    with pytest.raises(ValueError, match="stack_embedding_size=0; expected at least 1"):
        SuperpositionStackAttention(4, 0)
    with pytest.raises(ValueError, match="d_model=-4; expected at least 1"):
        SuperpositionStackAttention(-4, 2)
    with pytest.raises(ValueError, match="d_model=0; expected at least 1"):
        NondeterministicStackAttention(0, 1, 1, 1)
    with pytest.raises(ValueError, match="phase_offset=inf; expected a number"):
        NondeterministicStackAttention(4, 1, 1, 1, phase_offset=math.inf)
    for pop_offset in (math.nan, math.inf):
        with pytest.raises(ValueError, match=f"pop_offset={pop_offset}; expected a number, or -inf"):
            NondeterministicStackAttention(4, 1, 1, 1, pop_offset=pop_offset)


def test_an_explanation_is_printed_without_its_numbers():
    layer = NondeterministicStackAttention(4, 1, 2, 3)
    shown = repr(layer.explain(torch.randn(2, 5, 4)))
    assert shown.startswith("Explanation('nondeterministic', attention of layer 0: weights (2, 1, 5, 6), ")
    assert shown.endswith("actions (2, 5, 3), best_run (2, 5, 3))")


def pointer_that_decays():
    """Its first vector is 1, all others are 0; each step pops 0.002 of the stack and pushes as much."""
    layer, x = StackPointerAttention(2), torch.zeros(1, 150, 2)
    layer.projection.weight.zero_()
    layer.projection.bias.copy_(torch.tensor([0.002, 0.996, 0.002]).log())
    x[:, 0] = 1
    return layer, x, lambda y: y[0].item()


def superposition_that_decays():
    """The same actions after a push of 1; input 0 stands for a bias, and input 1 marks the first step."""
    layer, x = SuperpositionStackAttention(3, 1, pushed_activation="none"), torch.zeros(1, 150, 3)
    layer.output.weight.fill_(1)
    weight = layer.projection.weight.zero_()
    weight[:3, 0] = torch.tensor([0.002, 0.996, 0.002]).log()
    weight[0, 1], weight[3, 1] = 20, 1
    x[..., 0], x[:, 0, 1] = 1, 1
    return layer, x, lambda y: y[0].item()


def delta_product_that_decays():
    """A value is written at the first and at the last step; each step leaves exp(-0.0018) of what was."""
    layer = DeltaProductAttention(4, 1, 1, key_size=2, value_size=2, convolution_size=0)
    weight, x = layer.projection.weight.zero_(), torch.zeros(1, 300, 4)
    weight[[0, 1, 7, 8], 0], weight[6, 0] = 2, -20
    weight[[2, 4], 1], weight[[3, 5], 2], weight[6, 1:3] = 4, 4, 20
    layer.log_rate.zero_()
    layer.decay_bias.fill_(math.log(math.expm1(0.0018)))
    layer.output.weight.zero_()[[0, 1], [0, 1]] = 1
    x[..., 0], x[:, 0, 1], x[:, -1, 2] = 1, 1, 1
    return layer, x, lambda y: (y[0] / y[1]).item()


@pytest.mark.parametrize("decaying", [pointer_that_decays, superposition_that_decays, delta_product_that_decays])
@torch.no_grad()
def test_steps_in_half_precision_keep_their_state_in_float32(decaying):
    """In bfloat16 it would lose nothing by a factor of 0.998, or twice as much, at every step."""
    layer, x, left = decaying()
    layer, x = layer.to(torch.bfloat16).eval(), x.to(torch.bfloat16)
    found, whole = by_steps(layer, layer.initial_state(1), x), layer(x)
    assert found.dtype == torch.bfloat16
    assert 0.5 < left(whole[0, -1]) < 0.8
    assert left(found[0, -1]) == pytest.approx(left(whole[0, -1]), rel=0.02)
