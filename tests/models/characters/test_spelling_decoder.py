"""The character decoder: its definition, forward equals step by step, its size."""

import pytest
import torch

from structattn.models import SpellingDecoder

CHARACTERS, WIDTH = 9, 6
INPUTS = torch.tensor([[1, 4, 5, 6], [1, 7, 0, 0]])


def decoder(**changes):
    torch.manual_seed(1)
    return SpellingDecoder(
        CHARACTERS, WIDTH, **({"character_embedding_size": 3, "hidden_size": 5, "num_layers": 2} | changes)
    ).double()


def vectors():
    return torch.randn(2, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"separate": False, "hidden_size": WIDTH}])
def test_the_first_layer_alone_begins_with_the_vector(changes):
    model, xs = decoder(**changes), vectors()
    logits = model(xs, INPUTS)
    assert logits.shape == (2, 4, CHARACTERS - 2)
    for row, x in enumerate(xs):
        begun = x if model.initial_projection is None else torch.tanh(model.initial_projection.weight @ x)
        hidden = [begun, torch.zeros_like(begun)]
        cell = [torch.zeros_like(begun) for _ in range(2)]
        for t, character in enumerate(INPUTS[row].tolist()[: 4 if row == 0 else 2]):
            below = model.table.weight[max(0, character - 2)]  # <bos> and <eos> are one mark
            for layer in range(2):
                weights = [
                    getattr(model.lstm, f"{n}_l{layer}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                ]
                gates = weights[0] @ below + weights[1] @ hidden[layer] + weights[2] + weights[3]
                i, f, g, o = gates.chunk(4)
                cell[layer] = f.sigmoid() * cell[layer] + i.sigmoid() * g.tanh()
                below = hidden[layer] = o.sigmoid() * cell[layer].tanh()
            close(logits[row, t], model.output.weight @ below + model.output.bias)


@torch.no_grad()
def test_step_by_step_equals_the_whole():
    model, xs, inputs = decoder(), vectors(), INPUTS
    whole, state = model(xs, inputs), model.initial_state(xs)
    order = torch.tensor([1, 0])
    for t in range(4):
        logits, state = model.step(inputs[:, t], state)
        close(logits, whole[:, t])
        whole, inputs, state = whole[order], inputs[order], state.select(order)


def test_no_words_give_gradients_of_zero():
    model = decoder()
    model(vectors()[:0], INPUTS[:0]).sum().backward()
    assert all((parameter.grad == 0).all() for parameter in model.parameters())


def test_parameter_counts():
    found = sum(parameter.numel() for parameter in decoder().parameters())
    tables, layers = 7 * 3 + 5 * 7 + 7, 4 * 5 * (3 + 5 + 2) + 4 * 5 * (5 + 5 + 2)
    assert found == tables + layers + WIDTH * 5


def test_the_same_path_needs_as_many_units():
    with pytest.raises(ValueError, match="hidden_size=d_model=6"):
        decoder(separate=False)
