"""Receptive fields: against a search of the graph, relaxed against exact, and what the regularizer does."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F

from structattn.operators import decoder_receptive_fields, hard_attention, receptive_field, receptive_field_size

SHAPES = [(2, 1, 1, 1), (2, 3, 2, 2), (1, 2, 7, 4), (2, 2, 63, 3), (3, 1, 5, 1)]  # B, H, T, layers


def drawn_choices(batch, heads, time, keys=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, time if keys is None else keys, (batch, heads, time), generator=generator)


def one_hot(choices, keys):
    return F.one_hot(choices.clamp(min=0), keys).double() * (choices >= 0)[..., None]


def soft_weights(batch, heads, time, keys=None, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, heads, time, time if keys is None else keys)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).softmax(-1)


def searched(layers, b, position):
    """Every input that a path of residuals and choices leads to, going down from ``position`` at the top."""
    inputs, open_nodes = set(), [(len(layers), position)]
    while open_nodes:
        layer, i = open_nodes.pop()
        if layer == 0:
            inputs.add(i)
            continue
        open_nodes.append((layer - 1, i))
        open_nodes += [(layer - 1, z) for z in layers[layer - 1][b, :, i].tolist() if z >= 0]
    return inputs


@pytest.mark.parametrize("shape", SHAPES)
def test_choices_and_one_hot_weights_reach_what_a_search_reaches(shape):
    batch, heads, time, count = shape
    layers = [drawn_choices(batch, heads, time, seed=layer) for layer in range(count)]
    field = receptive_field(layers)
    assert field.dtype == torch.bool
    for b in range(batch):
        for i in range(time):
            assert set(field[b, i].nonzero().flatten().tolist()) == searched(layers, b, i)
    weights = [one_hot(choices, time) for choices in layers]
    assert torch.equal(receptive_field(weights), field.double())
    assert torch.equal(receptive_field(weights, union="probabilistic"), field.double())


@pytest.mark.parametrize("union", ["clamp", "probabilistic"])
def test_relaxed_recursion_equals_the_equation(union):
    layers = [soft_weights(2, 2, 5, seed=layer) for layer in range(3)]
    field = receptive_field(layers, union=union)
    for b in range(2):
        s = [[float(i == j) for j in range(5)] for i in range(5)]
        for layer in layers:
            z = layer[b].tolist()
            sums = [
                [[sum(z[h][i][k] * s[k][j] for k in range(5)) for h in range(2)] for j in range(5)] for i in range(5)
            ]
            s = [
                [
                    min(s[i][j] + sum(sums[i][j]), 1)
                    if union == "clamp"
                    else 1 - (1 - s[i][j]) * math.prod(1 - x for x in sums[i][j])
                    for j in range(5)
                ]
                for i in range(5)
            ]
        torch.testing.assert_close(field[b], torch.tensor(s, dtype=torch.float64))
    assert (field <= 1 + 1e-15).all()


@pytest.mark.parametrize("union", ["clamp", "probabilistic"])
def test_gradcheck(union):
    scores = torch.randn(2, 2, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 2
    scores.requires_grad_()
    assert gradcheck(lambda x: receptive_field(x.exp().unbind(0), union=union), scores)


def test_decoder_takes_the_encoders_fields_over():
    encoder = receptive_field([drawn_choices(2, 2, 6, seed=layer) for layer in range(2)])
    layers = [(drawn_choices(2, 2, 4, seed=3 + layer), drawn_choices(2, 1, 4, 6, seed=7 + layer)) for layer in range(2)]
    target, source = decoder_receptive_fields(layers, encoder)
    assert torch.equal(target, receptive_field([own for own, _ in layers]))
    for b in range(2):
        sources = [set() for _ in range(4)]
        for own, cross in layers:
            sources = [sources[i].union(*(sources[z] for z in own[b, :, i].tolist() if z >= 0)) for i in range(4)]
            chosen = [[encoder[b, z].nonzero().flatten().tolist() for z in cross[b, :, i] if z >= 0] for i in range(4)]
            sources = [sources[i].union(*chosen[i]) for i in range(4)]
        assert [set(row.nonzero().flatten().tolist()) for row in source[b]] == sources
    weights = [(one_hot(own, 4), one_hot(cross, 6)) for own, cross in layers]
    relaxed = decoder_receptive_fields(weights, encoder.double())
    assert torch.equal(relaxed.target, target.double())
    assert torch.equal(relaxed.source, source.double())


def test_decoder_layers_may_lack_either_attention():
    encoder = receptive_field([drawn_choices(1, 1, 3)])
    own, cross = drawn_choices(1, 2, 4), drawn_choices(1, 1, 4, 3)
    target, source = decoder_receptive_fields([(own, None), (None, cross)], encoder)
    assert torch.equal(target, receptive_field([own]))
    assert torch.equal(source, decoder_receptive_fields([(None, cross)], encoder).source)
    assert not decoder_receptive_fields([(own, None)], encoder).source.any()


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_past_the_length_nothing_depends_on_anything(poison):
    lengths, layers = torch.tensor([6, 2, 0]), [soft_weights(3, 2, 6, seed=layer) for layer in range(2)]
    past = torch.arange(6) >= lengths[:, None]
    hidden = past[:, :, None] | past[:, None]
    poisoned = [layer.masked_fill(hidden[:, None], poison).requires_grad_() for layer in layers]
    field = receptive_field(poisoned, lengths=lengths)
    assert (field[hidden] == 0).all()
    size = receptive_field_size(field, lengths=lengths)
    for gradient in torch.autograd.grad(size, poisoned):
        assert gradient.isfinite().all()
        assert (gradient.transpose(0, 1)[:, hidden] == 0).all()
    alone = receptive_field([layer[1:2, :, :2, :2] for layer in layers])
    torch.testing.assert_close(field[1:2, :2, :2], alone)
    torch.testing.assert_close(size, (field[0].sum() + field[1].sum()) / 8)
    choices = [drawn_choices(3, 2, 6, keys=2, seed=layer) for layer in range(2)]
    assert torch.equal(
        receptive_field(choices, lengths=lengths)[1:2, :2, :2], receptive_field([c[1:2, :, :2] for c in choices])
    )


def test_decoder_with_lengths_equals_its_members_alone():
    lengths, memory_lengths = torch.tensor([4, 2]), torch.tensor([3, 5])
    encoder_layers = [soft_weights(2, 2, 5, seed=1)]
    own, cross = soft_weights(2, 2, 4, seed=2), soft_weights(2, 1, 4, 5, seed=3)
    encoder = receptive_field(encoder_layers, lengths=memory_lengths)
    together = decoder_receptive_fields([(own, cross)], encoder, lengths=lengths, memory_lengths=memory_lengths)
    for b, (t, s) in enumerate(zip(lengths.tolist(), memory_lengths.tolist(), strict=True)):
        alone_encoder = receptive_field([encoder_layers[0][b : b + 1, :, :s, :s]])
        alone = decoder_receptive_fields([(own[b : b + 1, :, :t, :t], cross[b : b + 1, :, :t, :s])], alone_encoder)
        torch.testing.assert_close(together.target[b : b + 1, :t, :t], alone.target)
        torch.testing.assert_close(together.source[b : b + 1, :t, :s], alone.source)
        assert together.source[b, t:].count_nonzero() + together.source[b, :, s:].count_nonzero() == 0


@pytest.mark.parametrize("form", ["printed", "union"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_printed_regularizer_is_a_constant(form, causal):
    sizes = []
    for seed in range(3):
        layers = [soft_weights(2, 2, 7, seed=seed + layer) for layer in range(2)]
        layers = [(layer.tril() if causal else layer).requires_grad_() for layer in layers]
        size = receptive_field_size(receptive_field(layers), form=form)
        sizes.append(size.item())
        assert all((gradient == 0).all() for gradient in torch.autograd.grad(size, layers))
    assert sizes == [7.0, 7.0, 7.0]


def test_the_union_over_one_counted_position_is_its_field():
    layers = [soft_weights(1, 1, 6, seed=layer, scale=3).requires_grad_() for layer in range(2)]
    field = receptive_field(layers)
    counted = torch.arange(6)[None] == 5
    union = receptive_field_size(field, form="union", counted=counted)
    torch.testing.assert_close(union, field[0, 5].sum())
    torch.testing.assert_close(receptive_field_size(field, counted=counted), field[0, 5].sum())
    assert any((gradient != 0).any() for gradient in torch.autograd.grad(union, layers))


def test_size_falls_when_two_heads_attend_to_the_same_place():
    def size(first, second):
        choices = torch.full((1, 2, 5), 4)
        choices[0, 0, 4], choices[0, 1, 4] = first, second
        choices[0, :, :4] = torch.arange(4)
        return receptive_field_size(receptive_field([one_hot(choices, 5)]))

    assert size(1, 1) < size(1, 2)
    # softly as well: the more two heads agree, the smaller it is
    scores = torch.tensor([4.0, 0.0, 0.0, 0.0, 0.0]).double()
    agreeing, parting = (
        torch.stack([scores, other]).softmax(-1)[None, :, None].expand(1, 2, 5, 5) for other in (scores, scores.roll(1))
    )
    assert receptive_field_size(receptive_field([agreeing])) < receptive_field_size(receptive_field([parting]))


def test_gradient_descent_on_the_size_makes_fields_small():
    scores = torch.randn(2, 1, 2, 6, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    sizes = []
    for _ in range(200):
        size = receptive_field_size(receptive_field(scores.softmax(-1).unbind(0), union="probabilistic"))
        sizes.append(size.item())
        (gradient,) = torch.autograd.grad(size, scores)
        scores.data -= 5 * gradient
    assert sizes[-1] < 0.6 * sizes[0]


def test_without_the_own_position():
    field = receptive_field([soft_weights(2, 1, 5)])
    with_own, without = receptive_field_size(field), receptive_field_size(field, own_position=False)
    torch.testing.assert_close(with_own - without, torch.ones((), dtype=torch.float64))
    choices = drawn_choices(2, 2, 5)
    hard = receptive_field([choices])
    torch.testing.assert_close(receptive_field_size(hard), hard.sum() / 10)


def test_hard_attention_depends_on_its_field_only():
    """Values of inputs outside the field change nothing, bit by bit, the scores given."""
    generator = torch.Generator().manual_seed(4)
    scores = [torch.randn(1, 2, 7, 7, generator=generator) for _ in range(2)]
    x = torch.randn(1, 2, 7, 3, generator=generator)

    def stacked(x):
        choices = []
        for layer in scores:
            readings, choice = hard_attention(layer, x, causal=True)
            x = torch.tanh(x + readings.sum(1, keepdim=True))
            choices.append(choice)
        return x, choices

    y, choices = stacked(x)
    field = receptive_field(choices)
    for i in range(7):
        changed = x + 10 * (~field[0, i]).float()[None, None, :, None]
        assert torch.equal(stacked(changed)[0][0, :, i], y[0, :, i])


@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 2, 0), (2, 0, 3)])
def test_empty_sizes(shape):
    batch, heads, time = shape
    weights = torch.zeros(batch, heads, time, time, requires_grad=True)
    field = receptive_field([weights])
    assert torch.equal(field, torch.eye(time).expand(batch, time, time))
    for form in ("mean", "union", "printed"):
        size = receptive_field_size(field, form=form)
        assert size.isfinite()
        assert torch.autograd.grad(size, weights, retain_graph=True)[0].isfinite().all()
    assert receptive_field([torch.zeros(batch, heads, time, dtype=torch.int64)]).shape == (batch, time, time)
    no_source = torch.zeros(batch, 0, 0)
    assert decoder_receptive_fields([(weights, torch.zeros(batch, 1, time, 0))], no_source).source.shape[2] == 0
    no_choice = torch.full((batch, 1, time), -1)
    assert decoder_receptive_fields([(None, no_choice)], no_source.bool()).source.shape[2] == 0


def test_survives_compilation_and_low_precision():
    weights, choices = soft_weights(2, 2, 5), drawn_choices(2, 2, 5)
    lengths = torch.tensor([5, 3])
    for attention in (weights, choices):

        def program(attention, lengths):
            return receptive_field_size(receptive_field([attention] * 2, lengths=lengths), lengths=lengths)

        compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(attention, lengths), program(attention, lengths))
    low = receptive_field([weights.bfloat16()] * 2)
    assert low.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(receptive_field([weights.bfloat16().float()] * 2), low)


def test_size_of_a_field_in_half_precision_is_summed_in_float32():
    assert receptive_field_size(torch.ones(64, 40, 40, dtype=torch.float16)) == 40


@pytest.mark.parametrize("union", ["clamp", "probabilistic"])
def test_nan_stays(union):
    weights = soft_weights(2, 1, 4)
    weights[1, 0, 2, 1] = torch.nan
    found = receptive_field([weights], union=union).isnan()
    assert found[1, 2].any()
    assert not found[0].any()
    assert not found[1, [0, 1, 3]].any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w, c: receptive_field([]), "attentions is empty"),
        (lambda w, c: receptive_field([w[0, 0]]), r"attentions\[0\] has shape \(4, 4\); expected \(B, H, T\)"),
        (lambda w, c: receptive_field([w, c]), "expected choices only, or weights only"),
        (lambda w, c: receptive_field([c, w]), "expected choices only, or weights only"),
        (lambda w, c: receptive_field([w[:, :, :, :3]]), "weights has shape"),
        (lambda w, c: receptive_field([w], union="or"), "union='or'; expected one of"),
        (lambda w, c: receptive_field([w], lengths=torch.tensor([5, 4])), "lengths range from 4 to 5"),
        (lambda w, c: decoder_receptive_fields([(None, None)], w[:, 0]), "layers contain no attention"),
        (lambda w, c: decoder_receptive_fields([(w, None)], w[:, 0, :3]), "encoder_field has shape"),
        (lambda w, c: decoder_receptive_fields([(c, None)], w[:, 0]), "torch.float64; expected booleans with choices"),
        (lambda w, c: decoder_receptive_fields([(w, None)], w[:, 0] > 0), "torch.bool; expected numbers with weights"),
        (lambda w, c: receptive_field_size(w), "field has shape"),
        (lambda w, c: receptive_field_size(w[:, 0], form="sum"), "form='sum'"),
        (lambda w, c: receptive_field_size(w[:, 0, :, :3], own_position=False), "needs an input of each position"),
        (lambda w, c: receptive_field_size(w[:, 0], counted=torch.ones(2, 3)), "counted has shape"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call(soft_weights(2, 1, 4), drawn_choices(2, 1, 4))
