"""A mechanism, the feed-forward sublayer, the norm and the embedding are changed: whatever uses the model follows."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import structattn
from structattn import accelerate
from structattn.attention import CrossSoftmaxAttention, NondeterministicStackAttention, SoftmaxAttention
from structattn.decoding import BeamSearch, beam_search, start_translation
from structattn.models import Block, Embedding, EncoderDecoder, FeedForward, LanguageModel, Layers, evaluating
from structattn.operators.common.kernels import compiled_kernels

VOCABULARY = 12
TOKENS = torch.arange(14).view(2, 7) % 8 + 3
SIZES = [28, 64, 72, 192]


def randomized(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1).mul_((3 / parameter[0].numel()) ** 0.5 if parameter.dim() > 1 else 1)
    return model


def language_model(d_model):
    """Softmax attention, a nondeterministic stack, feed-forward sublayers."""
    layers = [Block(d_model, SoftmaxAttention(d_model, 4), feedforward=FeedForward(d_model, d_model))]
    layers.append(
        Block(d_model, NondeterministicStackAttention(d_model, 2, 2, 3), feedforward=FeedForward(d_model, d_model))
    )
    body = Layers(layers, nn.LayerNorm(d_model))
    return randomized(LanguageModel(Embedding(VOCABULARY, d_model), body, nn.Linear(d_model, VOCABULARY - 2)))


def translator(d_model):
    def side(causal):
        cross = CrossSoftmaxAttention(d_model, 4) if causal else None
        attention = SoftmaxAttention(d_model, 4, causal=causal)
        blocks = [Block(d_model, attention, cross, FeedForward(d_model, d_model)) for _ in range(2)]
        return Layers(blocks, nn.LayerNorm(d_model))

    return randomized(EncoderDecoder(Embedding(VOCABULARY, d_model, full_table=True), side(False), side(True)))


# The patches: of a class, or of the modules of a model, which then have a forward of their own.


def negated(forward):
    def patched(self, *arguments):
        return -forward(self, *arguments)

    return patched


def gelu(self, x):
    return self.output(nn.functional.gelu(self.hidden(x)))


def tanh_vectors(self, x):
    logits, values = self.projection(x).split_with_sizes(self.sizes, dim=-1)
    return logits, torch.tanh(values)


def attended(self, x, lengths=None):
    return 2 * self.attend(x, lengths)[0]


PATCHES = {  # class, name of a method, another method, whether it is called in steps
    "stack": (NondeterministicStackAttention, "_logits_and_values", tanh_vectors, True),
    "softmax": (SoftmaxAttention, "forward", attended, False),
    "feed-forward": (FeedForward, "forward", gelu, True),
    "norm": (nn.LayerNorm, "forward", negated(nn.LayerNorm.forward), True),
    "embedding": (Embedding, "forward", negated(Embedding.forward), True),
}


def patch(monkeypatch, how, model, kind, name, method):
    if how == "class":
        monkeypatch.setattr(kind, name, method)
        return
    for module in model.modules():
        if type(module) is kind:
            setattr(module, name, method.__get__(module))


def outputs(model, *inputs):
    """Logits in training with the gradients, and in evaluation."""
    y = model(*inputs)
    gradients = torch.autograd.grad(y.square().sum(), list(model.parameters()), materialize_grads=True)
    with evaluating(model), torch.no_grad():
        return [y, *gradients, model(*inputs)]


def stepped(model):
    with evaluating(model), torch.no_grad():
        state, found = model.initial_state(len(TOKENS)), []
        for column in TOKENS.T:
            logits, state = model.step(column, state)
            found.append(logits)
    return torch.stack(found, dim=1)


def translations(model):
    with evaluating(model), torch.no_grad():
        found = beam_search(model, start_translation(model, TOKENS), 9, BeamSearch(3))
    return [[(each.tokens, each.score) for each in hypotheses] for hypotheses in found]


def assert_close_translations(fast, model):
    for found, wanted in zip(translations(fast), translations(model), strict=True):
        for (tokens, score), (expected_tokens, expected) in zip(found, wanted, strict=True):
            assert tokens == expected_tokens
            assert score == pytest.approx(expected, rel=1e-4)


def close(found, expected):
    return all(torch.allclose(one, two, rtol=1e-3, atol=1e-3) for one, two in zip(found, expected, strict=True))


@pytest.mark.covering(1)
@pytest.mark.parametrize("d_model", SIZES)
@pytest.mark.parametrize("how", ["class", "instance"])
@pytest.mark.parametrize("what", PATCHES)
def test_a_patch_is_followed(monkeypatch, what, how, d_model):
    kind, name, method, in_steps = PATCHES[what]
    model = language_model(d_model)
    before, steps_before = outputs(model, TOKENS), stepped(model)
    patch(monkeypatch, how, model, kind, name, method)
    fast = accelerate(model)
    expected = outputs(model, TOKENS)
    assert not torch.allclose(expected[0], before[0], rtol=1e-2), "the patch has no effect"
    assert close(outputs(fast, TOKENS), expected)
    assert close([stepped(fast)], [stepped(model)])
    assert torch.allclose(stepped(fast), steps_before, rtol=1e-2) is not in_steps


@pytest.mark.covering(1)
@pytest.mark.parametrize("d_model", SIZES)
@pytest.mark.parametrize("how", ["class", "instance"])
@pytest.mark.parametrize("what", ["softmax", "feed-forward", "norm", "embedding"])
def test_beam_search_follows_a_patch(monkeypatch, what, how, d_model):
    kind, name, method, _ = PATCHES[what]
    model = translator(d_model)
    patch(monkeypatch, how, model, kind, name, method)
    fast = accelerate(model)
    assert close(outputs(fast, TOKENS, TOKENS), outputs(model, TOKENS, TOKENS))
    assert_close_translations(fast, model)


# Edits of the source: file, text before, text after.
EDITS = {
    "stack": ("attention/nondeterministic_stack.py", "torch.sigmoid(values) if", "torch.tanh(values) if"),
    "feed-forward": ("models/block.py", "F.relu(self.hidden(x))", "F.gelu(self.hidden(x))"),
    "norm": ("models/block.py", "return self.norm(x) if self.norm", "return 2 * self.norm(x) if self.norm"),
    "embedding": ("models/embedding.py", "self.table(rows) * self.factor", "(self.table(rows) * self.factor).tanh()"),
}
IN_EDITED_COPY = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
sys.path[:0] = [{copy!r}, {here!r}]
import structattn, test_edits
assert structattn.__file__.startswith({copy!r})
print([test_edits.total_of_agreeing_forms(d_model) for d_model in test_edits.SIZES])
"""


def total_of_agreeing_forms(d_model):
    """The sum of all logits, which training, evaluation and steps of both forms must agree on; so must translations."""
    model = language_model(d_model)
    fast, logits = accelerate(model), stepped(model)
    assert close(outputs(fast, TOKENS), outputs(model, TOKENS))
    assert close([stepped(fast), outputs(fast, TOKENS)[-1]], [logits, logits])
    model = translator(d_model)
    assert_close_translations(accelerate(model), model)
    return logits.abs().sum().item()


@pytest.mark.apart
@pytest.mark.quick("feed-forward")
@pytest.mark.parametrize("what", EDITS)
def test_an_edited_copy_of_the_source_is_followed(tmp_path, what):
    name, before, after = EDITS[what]
    shutil.copytree(Path(structattn.__file__).parent, tmp_path / "structattn", ignore=shutil.ignore_patterns("*.pyc"))
    if (kernels := compiled_kernels()) is not None:  # an editable installation keeps them outside the source
        shutil.copy(kernels[1].__file__, tmp_path / "structattn/operators/common")
    path = tmp_path / "structattn" / name
    text = path.read_text(encoding="utf-8")
    assert text.count(before) >= 1
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    script = IN_EDITED_COPY.format(copy=str(tmp_path), here=str(Path(__file__).parent))
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=280, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
    for total, d_model in zip(json.loads(found.stdout), SIZES, strict=True):
        assert total != pytest.approx(total_of_agreeing_forms(d_model), rel=1e-3), "the edit has no effect"
    assert ("and its kernel differ" in found.stderr) is (what != "embedding")
