"""Layers in the place of nn.MultiheadAttention, alone and in torch's transformers."""

import copy

import pytest
import torch
from torch import nn

from structattn.attention import (
    GaussianAttention,
    HardAttention,
    NondeterministicStackAttention,
    SelfAttention,
    SoftmaxAttention,
    StackPointerAttention,
    SuperpositionStackAttention,
)
from structattn.attention.positions import RotaryPositions

D, TIME = 8, 5
LAYERS = {
    "softmax": lambda: SoftmaxAttention(D, 2),
    "softmax, rotary": lambda: SoftmaxAttention(D, 2, positions=RotaryPositions(D // 2)),
    "softmax, bidirectional": lambda: SoftmaxAttention(D, 2, causal=False),
    "hard": lambda: HardAttention(D, 2),
    "gaussian": lambda: GaussianAttention(D, [-1.0, 0.0], num_learned_heads=2),
    "gaussian, bidirectional": lambda: GaussianAttention(D, [-1.0, 1.0], causal=False),
    "superposition": lambda: SuperpositionStackAttention(D, 4),
    "superposition, two stacks": lambda: SuperpositionStackAttention(D, 4, num_heads=2),
    "nondeterministic": lambda: NondeterministicStackAttention(D, 2, 3, 2),
    "stack pointer": lambda: StackPointerAttention(D),
    "stack pointer, learned bottom": lambda: StackPointerAttention(D, bottom="learned"),
}
SAMPLED = HardAttention  # in training
each_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
each_of = lambda *names: pytest.mark.parametrize("make", [LAYERS[name] for name in names], ids=names)  # noqa: E731
nested_tensors = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")

LENGTHS = torch.tensor([5, 3, 1])
RIGHT = torch.arange(TIME) >= LENGTHS[:, None]  # padding
LEFT = RIGHT.flip(1)
CAUSAL = torch.ones(TIME, TIME, dtype=torch.bool).triu(1)


def examples():
    return torch.randn(3, TIME, D, generator=torch.Generator().manual_seed(2))


def adapted(make, **options):
    torch.manual_seed(1)
    return SelfAttention(make(), **options).eval()


def block(make=None, **options):
    """Torch's block, with a layer of ours if one is given."""
    torch.manual_seed(1)
    made = nn.TransformerEncoderLayer(D, 2, 16, dropout=0.0, batch_first=True, **options)
    if make is not None:
        made.self_attn = SelfAttention(make())
    return made


def encoder(made):
    return nn.TransformerEncoder(made, num_layers=2, enable_nested_tensor=False).eval()


def to_the_right(x):
    """From left to right padding."""
    return torch.stack([row.roll(TIME - int(length), 0) for row, length in zip(x, LENGTHS, strict=True)])


def by_hand(model, x, lengths):
    for each in model.layers:
        attention, forward = each.self_attn.layer, lambda x, each=each: each.linear2(torch.relu(each.linear1(x)))
        if each.norm_first:
            x = x + attention(each.norm1(x), lengths)
            x = x + forward(each.norm2(x))
        else:
            x = each.norm1(x + attention(x, lengths))
            x = each.norm2(x + forward(x))
    return x


@each_layer
@pytest.mark.parametrize("norm_first", [False, True])
@torch.no_grad()
def test_the_encoder_computes_with_the_layer(make, norm_first):
    model, x = encoder(block(make, norm_first=norm_first)), examples()
    found, expected = model(x, src_key_padding_mask=RIGHT), by_hand(model, x, LENGTHS)
    torch.testing.assert_close(found[~RIGHT], expected[~RIGHT], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(model(x), by_hand(model, x, None), rtol=1e-6, atol=1e-6)


@each_layer
@torch.no_grad()
def test_padding_on_either_side_is_as_good_as_none(make):
    model, x = encoder(block(make)), examples()
    right = model(x, src_key_padding_mask=RIGHT)
    left = model(to_the_right(x), src_key_padding_mask=LEFT)
    torch.testing.assert_close(left[~LEFT], right[~RIGHT], rtol=1e-6, atol=1e-6)
    for b, length in enumerate(LENGTHS):
        alone = model(x[b : b + 1, :length])
        torch.testing.assert_close(right[b, :length], alone[0], rtol=1e-6, atol=1e-6)


@each_layer
def test_an_empty_batch_may_have_a_mask(make):
    x = examples()[:0]
    assert adapted(make)(x, x, x, key_padding_mask=LEFT[:0])[0].shape == x.shape


@each_layer
def test_outputs_and_gradients_at_padding_are_zeros(make):
    x = to_the_right(examples()).masked_fill(LEFT[..., None], torch.nan).requires_grad_()
    y, weights = adapted(make)(x, x, x, key_padding_mask=LEFT)
    assert (y[LEFT] == 0).all()
    assert y.isfinite().all()
    assert (weights[LEFT] == 0).all()
    assert (weights.transpose(1, 2)[LEFT] == 0).all()
    y.sum().backward()
    assert (x.grad[LEFT] == 0).all()
    assert x.grad.isfinite().all()


@each_layer
@pytest.mark.parametrize("padding", [None, RIGHT])
def test_evaluation_without_gradients_takes_no_shortcut(make, padding):
    """Where torch would compute with the weights of nn.MultiheadAttention."""
    model, x = encoder(block(make)), examples()
    with torch.no_grad():
        found = model(x, src_key_padding_mask=padding)
    if not isinstance(model.layers[0].self_attn.layer, SAMPLED):
        model.train()
    expected = model(x, src_key_padding_mask=padding)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@nested_tensors
@each_of("superposition", "softmax, bidirectional")
@pytest.mark.parametrize("place", [0, 1])
def test_one_layer_of_a_finished_encoder_can_be_replaced(make, place):
    """In evaluation torch makes nested tensors, by the layer that was there or by the other one."""
    model, x = nn.TransformerEncoder(block(), num_layers=2), examples()
    model.layers[place].self_attn = SelfAttention(make())
    expected = model.train()(x, src_key_padding_mask=RIGHT)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            found = model.eval()(x, src_key_padding_mask=RIGHT)
        torch.testing.assert_close(found[~RIGHT], expected[~RIGHT], rtol=1e-5, atol=1e-6)


@each_layer
def test_a_training_step_changes_every_weight(make):
    model, x = encoder(block(make)).train(), examples()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x, src_key_padding_mask=LEFT).square().sum().backward()
    optimizer.step()
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == before.keys()


@each_layer
@torch.no_grad()
def test_copies_and_saved_weights(make):
    made, x = adapted(make), examples()
    other = copy.deepcopy(made)
    for parameter in other.parameters():
        parameter.zero_()
    y = made(x, x, x, need_weights=False)[0]
    assert made.state_dict().keys() == {f"layer.{name}" for name in made.layer.state_dict()}
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(x, x, x, need_weights=False)[0], y)


def torchs(layer):
    """nn.MultiheadAttention with the weights of SoftmaxAttention."""
    other = nn.MultiheadAttention(D, layer.num_heads, batch_first=True)
    with torch.no_grad():
        other.in_proj_weight.copy_(layer.projection.weight)
        other.in_proj_bias.copy_(layer.projection.bias)
        other.out_proj.load_state_dict(layer.output.state_dict())
    return other


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("padding", [None, LEFT, RIGHT])
@pytest.mark.parametrize("form", [torch.bool, torch.float32])
@each_of("softmax", "softmax, bidirectional")
def test_softmax_attention_is_that_of_torch(make, average, padding, form):
    ours, x = adapted(make), examples()
    causal = ours.layer.causal
    mask = CAUSAL if causal else None

    def in_form(mask):
        if mask is None or form == torch.bool:
            return mask
        return torch.zeros(mask.shape).masked_fill(mask, -torch.inf)

    options = {
        "key_padding_mask": in_form(padding),
        "attn_mask": in_form(mask),
        "average_attn_weights": average,
        "is_causal": causal,
    }
    real = torch.ones(3, TIME, dtype=torch.bool) if padding is None else ~padding
    found, weights = ours(x, x, x, **options)
    expected, expected_weights = torchs(ours.layer)(x, x, x, **options)
    torch.testing.assert_close(found[real], expected[real], rtol=1e-5, atol=1e-6)
    assert weights.shape == expected_weights.shape
    rows = (weights, expected_weights) if average else (weights.transpose(1, 2), expected_weights.transpose(1, 2))
    torch.testing.assert_close(rows[0][real], rows[1][real], rtol=1e-5, atol=1e-6)
    assert weights.requires_grad


@each_layer
def test_the_weights_are_those_of_the_layer(make):
    made, x = adapted(make), examples()
    record = made.layer.explain(x, LENGTHS)
    y, weights = made(x, x, x, RIGHT, average_attn_weights=False)
    assert weights.shape == (3, made.num_heads, TIME, TIME)
    torch.testing.assert_close(weights, record.weights[..., record.first_source :])
    torch.testing.assert_close(y, made(x, x, x, RIGHT, need_weights=False)[0])
    torch.testing.assert_close(made(x, x, x, RIGHT)[1], weights.mean(1))


@pytest.mark.shapes
@each_layer
@torch.no_grad()
def test_time_first_and_without_a_batch(make):
    made, x = adapted(make), to_the_right(examples())
    y, weights = made(x, x, x, LEFT)
    swapped = x.transpose(0, 1)
    y_t, weights_t = adapted(make, batch_first=False)(swapped, swapped, swapped, LEFT)
    assert torch.equal(y_t.transpose(0, 1), y)
    assert torch.equal(weights_t, weights)
    one = x[1]
    for option in (True, False):
        alone, alone_weights = adapted(make, batch_first=option)(one, one, one, LEFT[1])
        torch.testing.assert_close(alone, y[1])
        torch.testing.assert_close(alone_weights, weights[1])


@torch.no_grad()
def test_in_a_decoder():
    torch.manual_seed(1)
    made, x, memory = nn.TransformerDecoderLayer(D, 2, 16, batch_first=True).eval(), examples(), examples().flip(0)
    made.self_attn = adapted(LAYERS["superposition"])
    decoder = nn.TransformerDecoder(made, num_layers=1)
    found = decoder(x, memory, tgt_mask=CAUSAL, tgt_is_causal=True, tgt_key_padding_mask=RIGHT)
    middle = made.norm1(x + made.self_attn.layer(x, LENGTHS))
    middle = made.norm2(middle + made.multihead_attn(middle, memory, memory)[0])
    expected = made.norm3(middle + made.linear2(torch.relu(made.linear1(middle))))
    torch.testing.assert_close(found[~RIGHT], expected[~RIGHT], rtol=1e-6, atol=1e-6)


def test_compiled():
    model, x = encoder(block(LAYERS["superposition"])), examples()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found, expected = (form(x, src_key_padding_mask=LEFT) for form in (compiled, model))
    torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match="key_padding_mask has padding in the middle"):
        compiled(x, src_key_padding_mask=torch.tensor([[False, True, False, True, True]] * 3))


def test_on_the_meta_device():
    made, x = SelfAttention(SuperpositionStackAttention(D, 4, device="meta")), examples().to("meta")
    y, weights = made(x, x, x, LEFT.to("meta"), attn_mask=CAUSAL.to("meta"))
    assert y.is_meta
    assert weights.shape == (3, TIME, TIME)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("superposition", {"key": examples()}, "query, key and value are different tensors; expected the same one"),
        ("superposition", {"value": examples()}, "query, key and value are different tensors"),
        (
            "superposition",
            {"key_padding_mask": torch.tensor([[False, True, False, False, True]] * 3)},
            "key_padding_mask has padding in the middle of a sequence",
        ),
        (
            "superposition",
            {"key_padding_mask": RIGHT.T},
            r"key_padding_mask has shape \(5, 3\); expected \(B, T\) = \(3, 5\)",
        ),
        ("superposition", {"key_padding_mask": RIGHT.long()}, "key_padding_mask has dtype torch.int64; expected"),
        ("superposition", {"key_padding_mask": RIGHT * 0.5}, "key_padding_mask has numbers other than 0 and -inf"),
        (
            "superposition",
            {"attn_mask": CAUSAL.T},
            "attn_mask hides other positions than the SuperpositionStackAttention; .* all later positions",
        ),
        (
            "superposition",
            {"attn_mask": ~CAUSAL & CAUSAL},
            "attn_mask hides other positions than the SuperpositionStack",
        ),
        ("superposition", {"attn_mask": CAUSAL * -0.5}, "attn_mask has numbers other than 0 and -inf"),
        ("superposition", {"attn_mask": CAUSAL[:4, :4]}, r"attn_mask has shape \(4, 4\); expected .* \(.., 5, 5\)"),
        (
            "softmax, bidirectional",
            {"attn_mask": CAUSAL},
            "attn_mask hides other positions than the Soft.* nothing: it has causal=F",
        ),
        ("softmax, bidirectional", {"is_causal": True}, "is_causal=True, but the SoftmaxAttention has causal=False"),
    ],
)
def test_refusals(name, options, message):
    x = examples()
    with pytest.raises(ValueError, match=message):
        adapted(LAYERS[name])(**{"query": x, "key": x, "value": x} | options)


def test_attributes():
    made = adapted(LAYERS["softmax"])
    assert (made.embed_dim, made.num_heads, made.batch_first) == (D, 2, True)
    assert made.in_proj_weight is made.in_proj_bias is None
    assert adapted(LAYERS["stack pointer"]).num_heads == 1


@pytest.mark.parametrize("layer", ["superposition", torch.nn.MultiheadAttention(4, 2)], ids=["name", "torch"])
def test_what_is_no_layer_is_refused(layer):
    with pytest.raises(TypeError, match="expected a layer of structattn"):
        SelfAttention(layer)
