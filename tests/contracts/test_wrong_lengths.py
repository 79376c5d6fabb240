"""A mask, a list and the like in place of lengths are refused by name, at every level."""

import pytest
import torch

from structattn import attention, operators
from structattn.models import Block, Embedding, LanguageModel, Layers, RecurrentLanguageModel
from structattn.models.recurrent.recurrence import OneHot, Recurrence

B, T, D = 2, 5, 8
X, TOKENS = torch.randn(B, T, D), torch.full((B, T), 4)
WRONG = {
    "mask": (torch.ones(B, T, dtype=torch.bool), r"torch\.bool \(2, 5\)"),
    "mask of integers": (torch.ones(B, T, dtype=torch.int64), r"torch\.int64 \(2, 5\)"),
    "list": ([5, 3], "a list"),
    "number": (5, "a int"),
    "floats": (torch.tensor([5.0, 3.0]), r"torch\.float32 \(2,\)"),
    "booleans": (torch.tensor([True, False]), r"torch\.bool \(2,\)"),
    "too few": (torch.tensor([5]), r"torch\.int64 \(1,\)"),
}
SELF = {
    "softmax": attention.SoftmaxAttention(D, 2),
    "hard": attention.HardAttention(D, 2),
    "gaussian": attention.GaussianAttention(D, (-1.0, 0.0)),
    "superposition": attention.SuperpositionStackAttention(D, 3),
    "nondeterministic": attention.NondeterministicStackAttention(D, 2, 2, 3),
    "stack_pointer": attention.StackPointerAttention(D),
    "stack_trans": attention.StackTransAttention(D),
    "delta_product": attention.DeltaProductAttention(D, 2),
}
CROSS = {
    "softmax": attention.CrossSoftmaxAttention(D, 2),
    "hard": attention.CrossHardAttention(D, 2),
    "gaussian": attention.CrossGaussianAttention(D, (-1.0, 0.0)),
}
TRANSFORMER = LanguageModel(Embedding(9, D), Layers([Block(D, SELF["softmax"])]), torch.nn.Linear(D, 7))
RECURRENT = RecurrentLanguageModel(OneHot(9), Recurrence(6, 4), torch.nn.Linear(4, 7))
ACTIONS = torch.rand(B, T, 3)
CALLS = {
    **{f"{name} forward": lambda wrong, layer=layer: layer(X, wrong) for name, layer in SELF.items()},
    **{f"{name} explain": lambda wrong, layer=layer: layer.explain(X, wrong) for name, layer in SELF.items()},
    **{f"{name} across": lambda wrong, layer=layer: layer(X, X, wrong) for name, layer in CROSS.items()},
    "two_stream": lambda wrong: attention.TwoStreamAttention(D, 2)(attention.Streams(X, X), wrong),
    "language model": lambda wrong: TRANSFORMER(TOKENS, wrong),
    "explanation of a language model": lambda wrong: TRANSFORMER.explain(TOKENS, wrong),
    "recurrent language model": lambda wrong: RECURRENT(TOKENS, wrong),
    "superposition_stack": lambda wrong: operators.superposition_stack(ACTIONS, X, lengths=wrong),
    "softmax_attention": lambda wrong: operators.softmax_attention(*[X[:, None]] * 3, lengths=wrong),
    "hard_attention": lambda wrong: operators.hard_attention(torch.rand(B, 1, T, T), X[:, None], lengths=wrong),
    "gaussian_attention": lambda wrong: operators.gaussian_attention(X[:, None], (0.0,), lengths=wrong),
}
MEMORY = {
    **{f"{name} across": lambda wrong, layer=layer: layer(X, X, None, wrong) for name, layer in CROSS.items()},
    **{f"{name} state": lambda wrong, layer=layer: layer.initial_state(X, wrong) for name, layer in CROSS.items()},
}
NAMED = {"lengths": CALLS, "memory_lengths": MEMORY}


@pytest.mark.covering(1)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(("name", "call"), [(name, call) for name in NAMED for call in NAMED[name]])
def test_lengths(name, call, wrong):
    given, found = WRONG[wrong]
    with pytest.raises(ValueError, match=rf"^{name}: integers \(B,\) = \(2,\), found {found}$"):
        NAMED[name][call](given)
