"""Words from characters: the fast form against recurrences written out for one word at a time."""

import pytest
import torch

from structattn.models import BidirectionalComposition, ForwardComposition
from structattn.models.characters.embedding import CoupledLstm

CHARACTERS, WIDTH = 9, 6
WORDS = [[1, 4, 5, 6, 2], [1, 7, 2], [1, 2], [1, 4, 5, 6, 2], [1, 8, 8, 8, 8, 8, 4, 2]]


def padded(words):
    longest = max(map(len, words))
    return torch.tensor([word + [0] * (longest - len(word)) for word in words])


def lstm_states(lstm, layer, xs):
    """h_1, h_2, ... of one layer: i, f, g, o lie above each other in torch's matrices."""
    weights = [getattr(lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    hidden = cell = torch.zeros(lstm.hidden_size, dtype=torch.float64)
    states = []
    for x in xs:
        i, f, g, o = (weights[0] @ x + weights[1] @ hidden + weights[2] + weights[3]).chunk(4)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        states.append(hidden)
    return states


def coupled_states(lstm, xs):
    units = lstm.recurrent.in_features
    hidden = cell = torch.zeros(units, dtype=torch.float64)
    states = []
    for x in xs:
        a = lstm.input.weight @ x + lstm.input.bias + lstm.recurrent.weight @ hidden
        i = torch.sigmoid(a[:units] + lstm.peepholes[0] * cell)
        cell = (1 - i) * cell + i * torch.tanh(a[units : 2 * units])
        hidden = torch.sigmoid(a[2 * units :] + lstm.peepholes[1] * cell) * torch.tanh(cell)
        states.append(hidden)
    return states


@pytest.mark.parametrize("coupled", [False, True])
def test_c2w_is_its_definition(coupled):
    torch.manual_seed(1)
    c2w = BidirectionalComposition(CHARACTERS, WIDTH, 4, 5, coupled).double()
    if coupled:
        torch.nn.init.normal_(c2w.forwards.peepholes)
        torch.nn.init.normal_(c2w.backwards.peepholes)
    states = coupled_states if coupled else lambda lstm, xs: lstm_states(lstm, 0, xs)
    found = c2w(padded(WORDS))
    for vector, word in zip(found, WORDS, strict=True):
        xs = [c2w.table.weight[character] for character in word]
        forwards, backwards = states(c2w.forwards, xs)[-1], states(c2w.backwards, xs[::-1])[-1]
        d_f, d_b = c2w.output.weight[:, :5], c2w.output.weight[:, 5:]
        torch.testing.assert_close(vector, d_f @ forwards + d_b @ backwards + c2w.output.bias, rtol=1e-10, atol=1e-12)


def test_a_deep_lstm_gives_the_last_state_of_its_top_layer():
    torch.manual_seed(1)
    composition = ForwardComposition(CHARACTERS, WIDTH, 4, num_layers=3).double()
    found = composition(padded(WORDS))
    for vector, word in zip(found, WORDS, strict=True):
        xs = [composition.table.weight[character] for character in word]
        for layer in range(3):
            xs = lstm_states(composition.forwards, layer, xs)
        torch.testing.assert_close(vector, xs[-1], rtol=1e-10, atol=1e-12)


def compositions():
    torch.manual_seed(2)
    return [
        BidirectionalComposition(CHARACTERS, WIDTH),
        BidirectionalComposition(CHARACTERS, WIDTH, coupled=True),
        ForwardComposition(CHARACTERS, WIDTH),
    ]


@pytest.mark.parametrize("composition", compositions(), ids=["c2w", "coupled", "deep"])
def test_equal_spellings_give_equal_vectors(composition):
    composition = composition.double()
    found = composition(padded(WORDS))
    assert torch.equal(found[0], found[3])
    assert not torch.allclose(found[0], found[1])
    for vector, word in zip(found, WORDS, strict=True):  # whatever else is in the batch, and however many pads
        torch.testing.assert_close(composition(torch.tensor([word])), vector[None], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("composition", compositions(), ids=["c2w", "coupled", "deep"])
def test_no_words_give_no_vectors_and_gradients_of_zero(composition):
    found = composition(torch.zeros(0, 2, dtype=torch.int64))
    assert found.shape == (0, WIDTH)
    found.sum().backward()
    assert all((parameter.grad == 0).all() for parameter in composition.parameters())


def test_gradients_of_the_coupled_lstm():
    lstm = CoupledLstm(2, 3).double()
    torch.nn.init.normal_(lstm.peepholes)
    x = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    names = list(dict(lstm.named_parameters()))

    def states(x, *parameters):
        return torch.func.functional_call(lstm, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(states, (x, *lstm.parameters()))


@pytest.mark.parametrize(("d_c", "u"), [(50, 150), (3, 4)])
def test_parameter_counts(d_c, u):
    def count(module):
        return sum(parameter.numel() for parameter in module.parameters())

    ends = CHARACTERS * d_c + 2 * u * WIDTH + WIDTH
    assert count(BidirectionalComposition(CHARACTERS, WIDTH, d_c, u)) == ends + 2 * 4 * u * (d_c + u + 2)
    assert count(BidirectionalComposition(CHARACTERS, WIDTH, d_c, u, True)) == ends + 2 * (
        3 * u * (d_c + u + 1) + 2 * u
    )
    deep = 4 * WIDTH * (d_c + WIDTH + 2) + 4 * WIDTH * (2 * WIDTH + 2)
    assert count(ForwardComposition(CHARACTERS, WIDTH, d_c)) == CHARACTERS * d_c + deep
