"""Blocks over two streams: residual connections, independence of the streams, and the paper's equations."""

import math

import pytest
import torch
from torch.nn import functional as F

from structattn.attention import CrossTwoStreamAttention, Streams, TwoStreamAttention
from structattn.models import (
    Block,
    EachStream,
    Embedding,
    FeedForward,
    LanguageModel,
    Layers,
    SemanticStream,
    TwoStreamEmbedding,
)
from structattn.models.builders.models import build_model
from structattn.operators.receptive_field import receptive_field, receptive_field_size
from structattn.settings.run import resolve_settings
from structattn.settings.transformer import TwoStreamSettings
from structattn.support.errors import SettingsError

WIDTH, TIME = 6, 7
LENGTHS, MEMORY_LENGTHS = torch.tensor([7, 4, 1]), torch.tensor([5, 2, 0])


def streams(time=TIME, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return Streams(*(torch.randn(3, time, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2)))


def block(cross=False, seed=0, norm="post", dropout=0.0):
    torch.manual_seed(seed)
    across = CrossTwoStreamAttention(WIDTH, 2) if cross else None
    maps = EachStream(FeedForward(WIDTH, 9), FeedForward(WIDTH, 9))
    made = Block(WIDTH, TwoStreamAttention(WIDTH, 2), across, maps, norm=norm, dropout=dropout, two_streams=True)
    return made.double().eval()


def together(x):
    return torch.cat(x, dim=-1)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_sublayers_are_residual_in_each_stream(norm):
    made, x, memory = block(cross=True, norm=norm), streams(), streams(5, seed=2)

    def sublayer(x, norms, function):
        normed = [layer(stream) for layer, stream in zip((norms.syntactic, norms.semantic), x, strict=True)]
        y = function(Streams(*normed) if norm == "pre" else x)
        added = [a + b for a, b in zip(x, y, strict=True)]
        if norm == "post":
            added = [layer(stream) for layer, stream in zip((norms.syntactic, norms.semantic), added, strict=True)]
        return Streams(*added)

    def feedforward(x):
        maps = made.feedforward.layer.syntactic, made.feedforward.layer.semantic
        return Streams(*(m.output(F.relu(m.hidden(stream))) for m, stream in zip(maps, x, strict=True)))

    y = sublayer(x, made.attention.norm, lambda h: made.attention.layer(h, LENGTHS))
    y = sublayer(y, made.cross.norm, lambda h: made.cross.layer(h, memory, LENGTHS, MEMORY_LENGTHS))
    y = sublayer(y, made.feedforward.norm, feedforward)
    torch.testing.assert_close(together(made(x, LENGTHS, memory, MEMORY_LENGTHS)), together(y))


@pytest.mark.parametrize("training", [True, False])
def test_g_is_independent_of_the_embeddings_of_h(training):
    blocks, embedded, memory = (
        [block(cross=True, seed=s).train(training) for s in (0, 1)],
        streams(),
        streams(5, seed=2),
    )
    leaves = [embedded.semantic.requires_grad_(), memory.semantic.requires_grad_()]

    def program(x, memory):
        for made in blocks:
            x = made(x, LENGTHS, memory, MEMORY_LENGTHS)
        return x

    y = program(embedded, memory)
    found = torch.autograd.grad(y.syntactic.sum(), leaves, allow_unused=True)
    assert all(gradient is None or (gradient == 0).all() for gradient in found)
    other = [Streams(stream.syntactic, stream.semantic * math.nan) for stream in (embedded, memory)]
    assert torch.equal(program(*other).syntactic, y.syntactic)


def test_what_is_outside_the_receptive_field_cannot_matter():
    blocks, embedded = [block(seed=s) for s in (0, 1, 2)], streams()

    def program(x):
        choices = []
        for made in blocks:
            x, (weights, _) = made.attend(x)
            choices.append(weights.argmax(-1))
        return x.semantic, choices

    output, choices = program(embedded)
    field = receptive_field(choices)
    assert not field.all()
    seen_to_matter = 0
    for j in range(TIME):
        changed = embedded.semantic.clone()
        changed[:, j] += torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(j), dtype=torch.float64)
        result, same = program(Streams(embedded.syntactic, changed))
        assert all(torch.equal(a, b) for a, b in zip(same, choices, strict=True))
        assert torch.equal(result[~field[..., j]], output[~field[..., j]])
        seen_to_matter += int((result != output).any(-1)[field[..., j]].sum())
    assert seen_to_matter == int(field.sum())


def test_weights_reach_a_regularizer():
    blocks, x = [block(seed=s).train() for s in (0, 1)], streams()
    weights = []
    for made in blocks:
        x, (own, cross) = made.attend(x, LENGTHS)
        assert cross is None
        weights.append(own)
    size = receptive_field_size(receptive_field(weights, lengths=LENGTHS), lengths=LENGTHS)
    for made in blocks:
        (gradient,) = torch.autograd.grad(size, made.attention.layer.projection.weight, retain_graph=True)
        assert (gradient[: 2 * WIDTH].norm(dim=1) > 0).all()


def simplified(**settings):
    torch.manual_seed(0)
    sizes = {"d_model": WIDTH, "d_ff": 9, "num_heads": 1, "num_layers": 2, "bias": False, "dropout": 0.0}
    chosen = {"kind": "two_stream", "layer_form": "simplified", "init_scale": 0.5} | sizes | settings
    return build_model(TwoStreamSettings.model_validate(chosen), 9).double().eval()


def test_simplified_layers_follow_the_equations():
    made, x = simplified().layers.blocks[1], streams()
    g, h = made(x)
    maps, attention = made.attention.layer.feedforward, made.attention.layer.attention
    w_q, w_k, w_v = attention.projection.weight.split(WIDTH)
    for b in range(3):
        for i in range(TIME):
            mapped = [maps.syntactic(x.syntactic[b, j]) for j in range(i + 1)]
            scores = torch.stack([(w_q @ mapped[i]) @ (w_k @ mapped[j]) / math.sqrt(WIDTH) for j in range(i + 1)])
            mixed = sum(a * (w_v @ mapped[j]) for j, a in enumerate(scores.softmax(0)))
            torch.testing.assert_close(g[b, i], x.syntactic[b, i] + mixed)
            z = int(scores.argmax())
            expected = x.semantic[b, i] + attention.content.weight @ maps.semantic(x.semantic[b, z])
            torch.testing.assert_close(h[b, i], expected)


def test_simplified_layers_have_no_other_parameters():
    """Queries, keys, values and content, a feed-forward map for each stream; embeddings, and an output layer."""
    layer = 4 * WIDTH**2 + 2 * (2 * 9 * WIDTH + 9 + WIDTH)
    model = simplified(num_heads=2)
    assert sum(parameter.numel() for parameter in model.layers.parameters()) == 2 * layer
    assert not [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"kind": "two_stream", "layer_form": "simplified", "d_ff": None}, "simplified layers need feed-forward"),
        (
            {"kind": "two_stream", "layer_form": "other"},
            r"model\.layer_form: expected 'standard' or 'simplified'",
        ),
        ({"kind": "two_stream_encoder_decoder", "layer_form": "simplified"}, r"model\.layer_form: no such field"),
    ],
)
def test_simplified_layers_are_refused_where_the_equations_say_nothing(model, message):
    with pytest.raises(SettingsError, match=message):
        resolve_settings({"task": "language_modeling", "data": "x", "model": model})


def test_dropout_acts_in_training_only():
    made, x = block(dropout=0.5), streams()
    assert torch.equal(together(made(x)), together(made(x)))
    made.train()
    assert not torch.equal(made(x).syntactic, made(x).syntactic)


@pytest.mark.shapes
def test_explanation_is_the_attentions_own():
    made, x = block(norm="pre"), streams()
    expected = made.attention.layer.explain(made.attention.norm(x), LENGTHS)
    y, (record,) = made.explain(x, LENGTHS)
    assert torch.equal(together(y), together(made(x, LENGTHS)))
    assert torch.equal(record.weights, expected.weights)
    assert record.mechanism == "hard"


def language_model():
    torch.manual_seed(5)
    embedding = TwoStreamEmbedding(Embedding(9, WIDTH), Embedding(9, WIDTH))
    layers = Layers([block(seed=seed) for seed in range(3)], SemanticStream())
    return LanguageModel(embedding, layers, torch.nn.Linear(WIDTH, 7)).double().eval()


def test_a_language_model_predicts_from_the_chosen_words_alone():
    model, tokens = language_model(), torch.randint(3, 9, (3, TIME), generator=torch.Generator().manual_seed(0))
    logits, choices = model.attend(tokens)
    assert torch.equal(logits, model(tokens))
    field = receptive_field([weights.argmax(-1) for weights in choices])
    streams_in = model.embedding(tokens)
    for j in range(TIME):
        changed = streams_in.semantic.clone()
        changed[:, j] += 1
        result = model.output(model.layers(Streams(streams_in.syntactic, changed)))
        assert torch.equal(result[~field[..., j]], logits[~field[..., j]])


def test_each_stream_has_a_table_and_the_semantic_one_serves_as_output():
    model = language_model()
    assert torch.equal(model.embedding.class_embeddings(), model.embedding.semantic.table.weight)
    one = model.embedding.embed_step(torch.tensor([4, 5]), 3)
    whole = model.embedding(torch.tensor([[4], [5]]), 3)
    assert all(torch.equal(a, b[:, 0]) for a, b in zip(one, whole, strict=True))
