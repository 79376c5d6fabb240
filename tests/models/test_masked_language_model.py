"""The masked language model: any position can be asked for, and the mask is an input only."""

import pytest
import torch

from structattn.attention import SoftmaxAttention, SuperpositionStackAttention
from structattn.models import Block, Embedding, FeedForward, Layers, MaskedLanguageModel

VOCABULARY, WIDTH = 7, 8


def model(tied=False):
    torch.manual_seed(1)
    blocks = [
        Block(WIDTH, SoftmaxAttention(WIDTH, 2, causal=False), feedforward=FeedForward(WIDTH, 12)),
        Block(
            WIDTH,
            SoftmaxAttention(WIDTH, 2, causal=False),
            stack=SuperpositionStackAttention(WIDTH, 3),
        ),
    ]
    embedding = Embedding(VOCABULARY, WIDTH, full_table=True, num_mask_tokens=1)
    output = None if tied else torch.nn.Linear(WIDTH, VOCABULARY - 2)
    return MaskedLanguageModel(embedding, Layers(blocks, torch.nn.LayerNorm(WIDTH)), output).double().eval()


def tokens():
    return torch.randint(3, VOCABULARY, (3, 6), generator=torch.Generator().manual_seed(0))


@pytest.mark.shapes
@pytest.mark.parametrize("tied", [False, True])
def test_only_the_positions_asked_for_are_predicted(tied):
    lm, ids = model(tied), tokens()
    ids[:, 2] = lm.mask
    logits = lm(ids)
    assert logits.shape == (3, 6, VOCABULARY - 2)
    torch.testing.assert_close(lm(ids, predicted=ids == lm.mask), logits[:, 2])
    uneven = torch.zeros(3, 6, dtype=torch.bool)
    uneven[0, [1, 4]] = uneven[2, 0] = True
    torch.testing.assert_close(lm(ids, predicted=uneven), torch.stack([logits[0, 1], logits[0, 4], logits[2, 0]]))
    assert lm(ids, predicted=torch.zeros(3, 6, dtype=torch.bool)).shape == (0, VOCABULARY - 2)


def test_the_mask_has_a_row_and_no_class():
    lm = model(tied=True)
    assert lm.mask == VOCABULARY
    assert lm.embedding.table.num_embeddings == VOCABULARY + 1
    assert lm.embedding.class_embeddings().shape == (VOCABULARY - 2, WIDTH)
    assert torch.equal(lm.embedding.class_embeddings()[0], lm.embedding.table.weight[2])


@pytest.mark.shapes
def test_explanations():
    records = model().explain(tokens(), torch.tensor([6, 2, 4]))
    assert [(record.layer, record.sublayer) for record in records] == [(0, "attention"), (1, "attention"), (1, "stack")]
    assert (records[0].weights[0].triu(1) > 0).any()
