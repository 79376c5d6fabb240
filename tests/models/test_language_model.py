"""The language model: embedding table, residual blocks, dropout, initial weights."""

import math

import pytest
import torch
from torch.nn import functional as F

from structattn.attention import NondeterministicStackAttention, SoftmaxAttention, SuperpositionStackAttention
from structattn.models import Block, Embedding, FeedForward
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_language_model
from structattn.settings.transformer import LanguageModelSettings

VOCABULARY = 7  # <pad>, <bos>, <eos> and four symbols
MIXED = {"layers": "1.superposition-5.nondeterministic-2-2-3.1", "d_model": 8, "d_ff": 12, "num_heads": 2}


def model(**settings):
    torch.manual_seed(3)
    return build_language_model(LanguageModelSettings(**(MIXED | settings)), VocabularySpec(VOCABULARY)).double().eval()


def tokens(batch=3, time=6):
    drawn = torch.randint(3, VOCABULARY, (batch, time), generator=torch.Generator().manual_seed(0))
    drawn[:, 0] = 1
    return drawn


def test_untied_rows_and_tied_rows():
    untied, tied = model(), model(tied_embeddings=True)
    assert untied.embedding.table.num_embeddings == VOCABULARY - 2
    assert torch.equal(untied(torch.tensor([[1]])), untied(torch.tensor([[2]])))  # <bos> takes the row of <eos>
    assert not torch.equal(untied(torch.tensor([[2]])), untied(torch.tensor([[3]])))
    assert tied.embedding.table.num_embeddings == VOCABULARY
    assert not torch.equal(tied(torch.tensor([[1]])), tied(torch.tensor([[2]])))
    assert tied.output is None
    assert untied.output.bias is not None


def test_embeddings_are_scaled_and_placed():
    lm = model(layers="1")
    torch.testing.assert_close(
        lm.embedding(torch.tensor([[4, 5]]), 3),
        (lm.embedding.table.weight[[2, 3]] * math.sqrt(8) + lm.embedding.positions(3, 2))[None],
    )


@pytest.mark.shapes
def test_explanations_one_for_each_layer():
    records = model().explain(tokens(), torch.tensor([6, 2, 4]))
    assert [record.mechanism for record in records] == ["softmax", "superposition", "nondeterministic", "softmax"]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_block_is_two_residual_sublayers(norm):
    block, x = Block(6, SoftmaxAttention(6, 2), feedforward=FeedForward(6, 9), norm=norm), torch.randn(2, 4, 6)

    def sublayer(x, norm_layer, function):
        return x + function(norm_layer(x)) if norm == "pre" else norm_layer(x + function(x))

    hidden = sublayer(x, block.attention.norm, block.attention.layer)
    maps = block.feedforward.layer
    expected = sublayer(hidden, block.feedforward.norm, lambda h: maps.output(F.relu(maps.hidden(h))))
    torch.testing.assert_close(block(x), expected)


class Passing(SoftmaxAttention):
    """An attention that gives ones, so that a block shows what its dropout leaves."""

    def forward(self, x, lengths=None):
        return torch.ones_like(x)


def test_dropout_acts_on_sublayers_hidden_units_and_embeddings_in_training_only():
    block, x = Block(6, Passing(6, 1), feedforward=FeedForward(6, 9, 0.5), dropout=0.5), torch.zeros(50, 4, 6)
    with torch.no_grad():
        block.feedforward.layer.output.weight.zero_()
        block.feedforward.layer.output.bias.zero_()
    assert set(block(x).unique().tolist()) == {0.0, 2.0}
    assert torch.equal(block.eval()(x), torch.ones_like(x))
    lm = model(dropout=0.5, layers="1")
    assert torch.equal(lm(tokens()), lm(tokens()))
    assert not torch.equal(lm.train()(tokens()), lm(tokens()))
    assert (lm.embedding(tokens()) == 0).double().mean() > 0.3


def test_stack_layers_have_no_dropout_inside():
    for attention in (SuperpositionStackAttention(6, 3), NondeterministicStackAttention(6, 1, 2, 3)):
        x = torch.randn(2, 4, 6)
        assert torch.equal(attention.train()(x), attention(x))


def test_initial_weights():
    lm = model(init_scale=0.01, d_model=64, d_ff=128, layers="1.superposition-40.1")
    plain, stack, _ = lm.layers.blocks

    def assert_uniform(tensor, bound):
        assert tensor.abs().max() <= bound
        assert tensor.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)

    attention, feedforward = plain.attention.layer, plain.feedforward.layer
    for linear in (attention.projection, attention.output, feedforward.hidden, feedforward.output):
        assert_uniform(linear.weight, 0.01)
        assert_uniform(linear.bias, 0.01)
    assert_uniform(lm.embedding.table.weight, 0.01)
    for matrix in [*stack.attention.layer.xavier_matrices(), stack.feedforward.layer.output.weight, lm.output.weight]:
        assert_uniform(matrix, math.sqrt(6 / sum(matrix.shape)))
    hidden = stack.feedforward.layer.hidden.weight
    assert_uniform(hidden, math.sqrt(2) * math.sqrt(6 / sum(hidden.shape)))
    for zero in [
        stack.feedforward.layer.hidden.bias,
        stack.feedforward.layer.output.bias,
        lm.output.bias,
        lm.layers.final.bias,
    ]:
        assert (zero == 0).all()
    assert (lm.layers.final.weight == 1).all()


def test_bottom_vector_is_drawn_like_everything_else():
    lm = model(layers="nondeterministic-2-2-50", init_scale=0.01)
    bottom = lm.layers.blocks[0].attention.layer.bottom
    assert 0 < bottom.abs().max() <= 0.01


def test_compiles_whole():
    lm, ids = model(), tokens()
    compiled = torch.compile(lm, fullgraph=True, backend="aot_eager")
    lengths = torch.tensor([6, 2, 4])
    torch.testing.assert_close(compiled(ids, lengths), lm(ids, lengths))


def test_refusals():
    with pytest.raises(ValueError, match="vocabulary_size=2; expected at least 3"):
        Embedding(2, 4)
    with pytest.raises(ValueError, match="norm='both'"):
        Block(4, SoftmaxAttention(4, 1), norm="both")
