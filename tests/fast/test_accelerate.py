"""The fast form of a model: it computes the same, is checked before, and changes nothing of the model."""

import copy
import functools
import logging
import pickle

import pytest
import torch

from structattn import accelerate
from structattn.attention import CrossSoftmaxAttention, NondeterministicStackAttention, SoftmaxAttention
from structattn.models import (
    Block,
    Embedding,
    EncoderDecoder,
    FeedForward,
    LanguageModel,
    Layers,
    evaluating,
    evaluating_with_dropout,
)

D, VOCABULARY = 16, 9
TOKENS, LENGTHS = torch.arange(12).view(2, 6) % 5 + 3, torch.tensor([6, 4])


def block(stack=False, **keywords):
    attention = NondeterministicStackAttention(D, 2, 2, 3) if stack else SoftmaxAttention(D, 4, dropout=0.1, **keywords)
    return Block(D, attention, feedforward=FeedForward(D, 24, 0.2), dropout=0.1)


def language_model(stack=False):
    torch.manual_seed(3)
    layers = Layers([block(), block(stack)], torch.nn.LayerNorm(D))
    return LanguageModel(Embedding(VOCABULARY, D), layers, torch.nn.Linear(D, VOCABULARY - 2))


def translator():
    torch.manual_seed(3)
    decoder = Block(
        D, SoftmaxAttention(D, 4), CrossSoftmaxAttention(D, 4, dropout=0.1), FeedForward(D, 24, 0.2), dropout=0.1
    )
    embedding = Embedding(VOCABULARY, D, full_table=True)
    return EncoderDecoder(embedding, Layers([block(causal=False)]), Layers([decoder], torch.nn.LayerNorm(D)))


def results(model, *inputs, seed=5):
    torch.manual_seed(seed)
    y = model(*inputs)
    return [y, *torch.autograd.grad(y.square().sum(), list(model.parameters())), torch.get_rng_state()]


MODELS = {
    "softmax": (language_model, (TOKENS, LENGTHS)),
    "stack": (lambda: language_model(stack=True), (TOKENS, LENGTHS)),
    "translator": (translator, (TOKENS, TOKENS.flip(1), LENGTHS, None)),
}
each_model = pytest.mark.parametrize(("make", "inputs"), MODELS.values(), ids=MODELS.keys())


@each_model
@pytest.mark.parametrize("training", [True, False])
def test_computes_what_the_model_does(make, inputs, training):
    model = make().double()
    fast = accelerate(model)
    assert fast is not model
    model.train(training)
    for one, other in zip(results(fast, *inputs), results(model, *inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@each_model
def test_changes_nothing(make, inputs):
    model = make()
    model(*inputs).sum().backward()
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    before = {name: (tensor, tensor.clone(), tensor.grad.clone()) for name, tensor in tensors.items()}
    modules, generator = {name: dict(vars(module)) for name, module in model.named_modules()}, torch.get_rng_state()
    accelerate(model)
    assert torch.equal(torch.get_rng_state(), generator)
    assert modules == {name: dict(vars(module)) for name, module in model.named_modules()}
    for name, tensor in {**dict(model.named_parameters()), **dict(model.named_buffers())}.items():
        same, value, gradient = before[name]
        assert tensor is same
        assert torch.equal(tensor, value)
        assert torch.equal(tensor.grad, gradient)


@each_model
def test_has_the_class_weights_and_mode_of_the_model(make, inputs):
    model = make()
    fast = accelerate(model)
    assert isinstance(fast, type(model))
    assert list(fast.state_dict()) == list(model.state_dict())
    own = dict(model.named_parameters())
    assert all(parameter is own[name] for name, parameter in fast.named_parameters())
    with evaluating(fast):
        assert not any(module.training for module in model.modules())
        assert not fast.training
    model.eval()
    with evaluating_with_dropout(fast, seed=1):
        assert model.get_submodule("decoder" if make is translator else "layers").blocks[0].feedforward.layer.training
    assert not any(module.training for module in (*model.modules(), *fast.modules()))
    copied = copy.deepcopy(fast)
    assert torch.equal(copied(*inputs), fast(*inputs))


@each_model
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_and_pickles_are_accelerated_and_apart(make, inputs, duplicate):
    model = make().eval()
    fast, other = duplicate((accelerate(model), model))
    expected = model(*inputs)
    assert type(fast) is type(accelerate(model))
    assert fast._original is other
    with torch.no_grad():
        next(fast.parameters()).mul_(2)
    for form in (fast, other):
        assert not torch.allclose(form(*inputs), expected)
    torch.testing.assert_close(fast(*inputs), other(*inputs), rtol=1e-5, atol=1e-5)
    assert torch.equal(model(*inputs), expected)
    fast.train()
    assert other.training
    assert not model.training


def test_new_weights_hold_at_once():
    model = language_model().eval()
    fast = accelerate(model)
    other = language_model().double().float()
    for parameter in other.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    model.load_state_dict(other.state_dict())
    torch.testing.assert_close(fast(TOKENS), other.eval()(TOKENS), rtol=1e-5, atol=1e-6)


def test_steps_and_explanations_are_those_of_the_model():
    model = language_model().eval()
    fast, tokens = accelerate(model), torch.tensor([1, 4])
    expected, found = (form.step(tokens, form.initial_state(2))[0] for form in (model, fast))
    assert torch.equal(expected, found)
    weights = [[each.weights for each in form.explain(TOKENS)] for form in (model, fast)]
    torch.testing.assert_close(*weights)


def test_a_model_without_kernels_is_returned(caplog):
    large = LanguageModel(Embedding(VOCABULARY, 96), Layers([Block(96, SoftmaxAttention(96, 4))]))
    other = torch.nn.Linear(3, 3)
    assert accelerate(large) is large
    assert accelerate(other) is other
    assert not caplog.records


@pytest.mark.parametrize("to", ["meta", torch.bfloat16], ids=str)
def test_a_model_elsewhere_or_of_another_precision_is_returned(to, caplog):
    model = language_model().to(to)
    assert accelerate(model) is model
    assert not caplog.records


def test_layers_alone_and_within_other_modules():
    layers = Layers([block()])
    nested = torch.nn.ModuleDict({"a": torch.nn.ModuleList([layers, torch.nn.Linear(2, 2)]), "b": layers})
    fast = accelerate(nested)
    assert fast["b"] is fast["a"][0] is not layers
    assert fast["a"][1] is nested["a"][1]
    assert isinstance(accelerate(layers), Layers)


def disagreements(model, caplog):
    """The warning that is logged; ``accelerate`` must return the model."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "structattn"):
        assert accelerate(model) is model
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    return record.getMessage()


def test_a_module_that_differs_is_named(monkeypatch, caplog):
    monkeypatch.setattr(FeedForward, "forward", lambda self, x: self.output(self.hidden(x).tanh()))
    message = disagreements(language_model(), caplog)
    assert message.startswith("layers.blocks.0.feedforward.layer (FeedForward) and its kernel differ by ")
    assert message.endswith("the modules of the model are called one by one")


def test_a_forward_of_one_module_is_named(caplog):
    model = translator()
    feedforward = model.decoder.blocks[0].feedforward.layer
    feedforward.forward = lambda x: x
    assert "decoder.blocks.0.feedforward.layer (FeedForward) has a forward method" in disagreements(model, caplog)


def test_what_cannot_be_copied_or_computed_is_named(monkeypatch, caplog):
    model = language_model()
    model.layers.blocks[0].generator = (each for each in ())
    assert "layers (Layers) cannot be compared with its kernels: TypeError: " in disagreements(model, caplog)
    monkeypatch.setattr(Block, "forward", lambda self, x, *_: x.detach())
    assert "layers (Layers) cannot be compared with its kernels: " in disagreements(language_model(), caplog)


def test_a_block_that_computes_in_another_order_is_found(monkeypatch, caplog):
    monkeypatch.setattr(Block, "forward", lambda self, x, lengths, *_: self.attention(self.feedforward(x), lengths))
    assert disagreements(language_model(), caplog).startswith("layers (Layers) and its kernel differ by ")


def test_gradients_are_compared(monkeypatch, caplog):
    forward = FeedForward.forward
    monkeypatch.setattr(FeedForward, "forward", lambda self, x: forward(self, x.detach()))
    assert "layers.blocks.0.feedforward.layer (FeedForward)" in disagreements(language_model(), caplog)


def test_dropout_is_compared(monkeypatch, caplog):
    """A class that drops nothing differs in training alone."""
    monkeypatch.setattr(FeedForward, "forward", lambda self, x: self.output(self.hidden(x).relu()))
    assert "(FeedForward)" in disagreements(language_model(), caplog)


def test_frozen_weights_change_nothing(caplog):
    model = language_model()
    model.layers.blocks[0].requires_grad_(False)
    assert accelerate(model) is not model
    assert not caplog.records
    assert not any(parameter.requires_grad for parameter in model.layers.blocks[0].parameters())


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # tokens have no gradients
def test_backward_hooks_see_every_call():
    model, seen = language_model(), []
    fast = accelerate(model)
    for name in ("", "layers", "layers.blocks.1"):
        module, see = model.get_submodule(name), functools.partial(lambda name, *_: seen.append(name), name)
        module.register_full_backward_pre_hook(see)
        module.register_full_backward_hook(see)
    model(TOKENS).sum().backward()
    expected = seen.copy()
    seen.clear()
    fast(TOKENS).sum().backward()
    assert seen == expected
    assert len(seen) == 6


def test_hooks_do_not_see_the_comparison_but_every_call(caplog):
    model, seen = language_model(), []
    model.layers.blocks[1].feedforward.register_forward_hook(lambda *_: seen.append(1))
    model.register_forward_hook(lambda *_: seen.append(2))
    fast = accelerate(model)
    assert not seen
    assert not caplog.records
    fast(TOKENS)
    assert seen == [1, 2]
