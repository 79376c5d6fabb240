"""A block: any sublayer may be absent, and a stack may be added at the end."""

from typing import NamedTuple

import pytest
import torch

from structattn.attention import CrossSoftmaxAttention, GaussianAttention, SoftmaxAttention, SuperpositionStackAttention
from structattn.models import Block, Embedding, FeedForward, Layers, Residual, SpelledEmbedding

WIDTH = 6


def test_an_unknown_place_of_the_norm_is_refused():
    with pytest.raises(ValueError, match="norm_placement='prenorm'; expected 'pre' or 'post'"):
        Residual(torch.nn.Identity(), torch.nn.LayerNorm(WIDTH), "prenorm")


def block(norm="pre", dropout=0.0, **absent):
    torch.manual_seed(4)
    sublayers = {
        "attention": SoftmaxAttention(WIDTH, 2),
        "feedforward": FeedForward(WIDTH, 9),
        "stack": SuperpositionStackAttention(WIDTH, 3),
    }
    return Block(WIDTH, **(sublayers | absent), norm=norm, dropout=dropout)


def examples():
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_stack_is_added_without_norm_or_dropout(norm):
    whole, x = block(norm=norm, dropout=0.5), examples()
    names = {name.partition(".")[2].partition(".")[0] for name in whole.stack.state_dict(prefix="stack.")}
    assert names == {"layer"}
    without = block(norm=norm, stack=None)
    torch.testing.assert_close(whole.eval()(x), without(x) + whole.stack.layer(without(x)))
    torch.testing.assert_close(whole.train().stack(x), x + whole.stack.layer(x))


@pytest.mark.parametrize("absent", ["attention", "feedforward", "stack"])
def test_an_absent_sublayer_leaves_no_parameters_and_passes_on(absent):
    without = block(**{absent: None})
    assert not any(name.startswith(absent) for name, _ in without.named_parameters())
    x = expected = examples()
    for name in ("attention", "feedforward", "stack"):
        if name != absent:
            expected = getattr(without, name)(expected)
    torch.testing.assert_close(without(x), expected)


def test_a_block_of_nothing_is_the_identity():
    x, empty = examples(), block(attention=None, feedforward=None, stack=None)
    assert torch.equal(empty(x), x)
    assert list(empty.parameters()) == []
    assert empty.explain(x)[1] == []


def test_weights_come_out_of_the_pass_itself():
    cross = CrossSoftmaxAttention(WIDTH, 2)
    made, x, lengths = block(cross=cross, stack=None).train(), examples(), torch.tensor([5, 2])
    memory, memory_lengths = torch.randn(2, 3, WIDTH), torch.tensor([1, 3])
    y, (own, across) = made.attend(x, lengths, memory, memory_lengths)
    torch.testing.assert_close(y, made(x, lengths, memory, memory_lengths))
    _, (record, crossed) = made.explain(x, lengths, memory, memory_lengths)
    torch.testing.assert_close(own, record.weights)
    torch.testing.assert_close(across, crossed.weights)
    assert own.requires_grad
    own, across = block(cross=cross).attend(x, lengths, memory, memory_lengths)[1]
    assert own is None, "an added stack mixes positions, too"
    assert across is not None
    stack_only = block(attention=SuperpositionStackAttention(WIDTH, 3), stack=None)
    assert stack_only.attend(x)[1] == (None, None)


@pytest.mark.shapes
def test_explanations_say_where_they_come_from():
    layers, x, lengths = Layers([block(), block(attention=None)]), examples(), torch.tensor([5, 2])
    records = layers.explain(x, lengths)
    assert [(record.layer, record.sublayer, record.mechanism) for record in records] == [
        (0, "attention", "softmax"),
        (0, "stack", "superposition"),
        (1, "stack", "superposition"),
    ]
    first = layers.blocks[0]
    seen = first.feedforward(first.attention(x, lengths))
    torch.testing.assert_close(records[1].weights, first.stack.layer.explain(seen, lengths).weights)


def test_refusals():
    with pytest.raises(ValueError, match="norm='both'; expected 'pre', 'post' or 'none'"):
        Block(WIDTH, norm="both")
    across = block(cross=CrossSoftmaxAttention(WIDTH, 2))
    with pytest.raises(ValueError, match="expected a memory"):
        across(examples())
    with pytest.raises(ValueError, match="expected a memory"):
        across.initial_state(2)


class Total(NamedTuple):
    """A state that is a named tuple, and whose batch is not the first dimension."""

    sums: torch.Tensor

    def select(self, indices):
        return Total(self.sums[:, indices])


class RunningSum(torch.nn.Module):
    def initial_state(self, batch_size):
        return Total(torch.zeros(WIDTH, batch_size))

    def step(self, x_t, state):
        sums = state.sums + x_t.T
        return sums.T.clone(), Total(sums)


def test_states_select_by_their_own_rule():
    made, x = block(attention=RunningSum(), feedforward=None, stack=None, norm="none"), examples()
    _, state = made.step(x[:, 0], made.initial_state(2))
    chosen = torch.tensor([1, 0, 1])
    y, _ = made.step(x[chosen, 1], state.select(chosen))
    torch.testing.assert_close(y, (x[:, 0] + 2 * x[:, 1])[chosen])


@pytest.mark.parametrize("rate", [-0.5, 1.0, 1.5])
@pytest.mark.parametrize(
    "make",
    [
        lambda rate: FeedForward(WIDTH, 4, rate),
        lambda rate: SoftmaxAttention(WIDTH, 2, dropout=rate),
        lambda rate: CrossSoftmaxAttention(WIDTH, 2, dropout=rate),
        lambda rate: GaussianAttention(WIDTH, [0.0], num_learned_heads=1, dropout=rate),
        lambda rate: Block(WIDTH, SoftmaxAttention(WIDTH, 2), dropout=rate),
        lambda rate: Embedding(9, WIDTH, dropout=rate),
        lambda rate: SpelledEmbedding(9, WIDTH, None, torch.zeros(2, 3), dropout=rate),
    ],
)
def test_rates_of_dropout(make, rate):
    with pytest.raises(ValueError, match=f"dropout={rate}; expected 0 <= dropout < 1"):
        make(rate)
