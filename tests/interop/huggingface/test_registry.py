"""Gaussian and hard attention by name, in three models, against loops over queries and keys."""

import math

import pytest
import torch

TOLERANCE = 1e-6  # the Gaussians' table is in float32
MODELS = ["gpt2", "roberta", "llama"]
OFFSETS = {"gpt2": (-1, 0), "roberta": (-1, 1), "llama": (-1, 0)}


@pytest.fixture
def hf(transformers):
    from structattn.interop import huggingface

    huggingface.register_attention()
    return huggingface


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def model(request, hf, name):
    return request.getfixturevalue(name)()


@pytest.fixture
def define(transformers):
    """Registers an attention that is a loop: ``reads(module, q, k, v, visible, head, i)`` gives what query i reads."""

    def register(name, reads):
        def attention(module, query, key, value, attention_mask, scaling=None, **kwargs):
            batch, heads, queries, _ = query.shape
            out = query.new_zeros(batch, queries, heads, value.shape[3])
            for b in range(batch):
                for h in range(heads):
                    shared = h // (heads // key.shape[1])
                    for i in range(queries):
                        visible = (attention_mask[b, 0, i] == 0).nonzero()[:, 0].tolist()
                        scores = {j: (query[b, h, i] @ key[b, shared, j]).item() * scaling for j in visible}
                        out[b, i, h] = reads(h, i, scores, value[b, shared])
            return out, None

        transformers.AttentionInterface.register(name, attention)
        transformers.AttentionMaskInterface.register(name, all_of_eager_mask)

    from transformers.masking_utils import eager_mask

    def all_of_eager_mask(**kwargs):
        return eager_mask(**{**kwargs, "allow_is_bidirectional_skip": False})

    return register


def gaussian(distance, sigma=1.0):
    return math.exp(-(distance**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))


def gaussian_read(offsets):
    def reads(head, i, scores, values):
        return sum(
            (gaussian(j - i - offsets[head % len(offsets)]) * values[j] for j in scores), torch.zeros_like(values[0])
        )

    return reads


def hard_read(head, i, scores, values):
    return values[max(scores, key=scores.get)] if scores else torch.zeros_like(values[0])


def assert_close(result, expected, tolerance=TOLERANCE):
    assert (result - expected).norm() <= tolerance * expected.norm()


def with_positions(name, mask):
    """Positions that count real tokens only; RoBERTa finds them by itself."""
    return {} if name == "roberta" else {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)}


@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_models_compute_what_the_loop_does(hf, name, model, define, ids_of, batch_of, mechanism, side):
    define("defined", gaussian_read(OFFSETS[name]) if mechanism == "gaussian" else hard_read)
    ids, mask = batch_of([ids_of(1, time)[0] for time in (7, 1, 4)], side)
    arguments = {"attention_mask": mask, **with_positions(name, mask)}
    model.set_attn_implementation("defined")
    expected = model(ids, **arguments).logits
    model.set_attn_implementation(f"structattn_{mechanism}")
    result = model(ids, **arguments).logits
    real = mask.bool()
    assert_close(result[real], expected[real])
    model.set_attn_implementation("sdpa")
    assert (model(ids, **arguments).logits[real] - expected[real]).norm() > 0.01 * expected[real].norm()


@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
def test_a_padded_batch_equals_its_members_alone(hf, name, model, ids_of, batch_of, mechanism):
    model.set_attn_implementation(f"structattn_{mechanism}")
    rows = [ids_of(1, time)[0] for time in (7, 3, 5)]
    for side in ("left", "right"):
        ids, mask = batch_of(rows, side)
        together = model(ids, attention_mask=mask, **with_positions(name, mask)).logits
        for b, row in enumerate(rows):
            assert_close(together[b][mask[b].bool()], model(row[None]).logits[0], 1e-11)


def test_gaussian_weights_when_asked_for(hf, name, model, ids_of, batch_of):
    model.set_attn_implementation("structattn_gaussian")
    ids, mask = batch_of([ids_of(1, 5)[0], ids_of(1, 3)[0]], "left")
    weights = model(ids, attention_mask=mask, output_attentions=True).attentions
    assert len(weights) == 3
    for b in range(2):
        for head, offset in enumerate(OFFSETS[name]):
            for i in range(5):
                for j in range(5):
                    visible = mask[b, j] and (j <= i or name == "roberta")
                    expected = gaussian(j - i - offset) if visible else 0.0
                    assert weights[2][b, head, i, j].item() == pytest.approx(expected, abs=1e-7)


def test_hard_weights_when_asked_for(hf, model, ids_of):
    model.set_attn_implementation("structattn_hard")
    weights = model(ids_of(2, 6), output_attentions=True).attentions
    assert len(weights) == 3
    assert (weights[1].sum(-1) == 1).all()
    assert ((weights[1] == 0) | (weights[1] == 1)).all()


@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
def test_weights_are_not_made_when_nobody_asks(hf, transformers, model, ids_of, mechanism):
    given = []
    function = transformers.AttentionInterface()[f"structattn_{mechanism}"]

    def spy(*args, **kwargs):
        output, weights = function(*args, **kwargs)
        given.append(weights is not None)
        return output, weights

    transformers.AttentionInterface.register("spy", spy)
    transformers.AttentionMaskInterface.register("spy", transformers.AttentionMaskInterface()["structattn_hard"])
    model.set_attn_implementation("spy")
    model(ids_of(1, 4))
    model(ids_of(1, 4), output_hidden_states=True)
    assert given == [False] * 6
    model(ids_of(1, 4), output_attentions=True)
    assert given == [False] * 6 + [True] * 3


WAYS = {
    "greedy": {"do_sample": False},
    "beams": {"num_beams": 3, "do_sample": False},
}


def generate(model, ids, mask, **way):
    return model.generate(ids, attention_mask=mask, max_new_tokens=9, pad_token_id=0, **way)


@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generation_with_a_cache_as_without(hf, model, ids_of, batch_of, mechanism, way):
    model.set_attn_implementation(f"structattn_{mechanism}")
    prompts = [ids_of(1, time)[0] for time in (6, 2, 4)]
    ids, mask = batch_of(prompts, "left")
    result = generate(model, ids, mask, **way)
    assert torch.equal(result, generate(model, ids, mask, use_cache=False, **way))
    for b, prompt in enumerate(prompts):
        alone = generate(model, prompt[None], torch.ones_like(prompt[None]), **way)[0]
        assert torch.equal(result[b, 6 - len(prompt) :][: len(alone)], alone)


@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
def test_a_cache_with_room_to_spare(hf, llama, ids_of, batch_of, mechanism):
    model = llama()
    model.set_attn_implementation(f"structattn_{mechanism}")
    ids, mask = batch_of([ids_of(1, 6)[0], ids_of(1, 2)[0]], "left")
    static = generate(model, ids, mask, do_sample=False, cache_implementation="static")
    assert torch.equal(static, generate(model, ids, mask, do_sample=False))


@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
def test_a_sliding_window(hf, mistral, ids_of, batch_of, mechanism):
    model = mistral(sliding_window=4)
    model.set_attn_implementation(f"structattn_{mechanism}")
    ids, mask = batch_of([ids_of(1, 6)[0], ids_of(1, 3)[0]], "left")
    result = generate(model, ids, mask, do_sample=False)
    assert torch.equal(result, generate(model, ids, mask, do_sample=False, use_cache=False))


def test_pieces_of_any_size(hf, gpt2, llama, ids_of):
    ids = ids_of(2, 9)
    for model in (gpt2(), llama()):
        for mechanism in ("gaussian", "hard"):
            model.set_attn_implementation(f"structattn_{mechanism}")
            cache, logits = None, []
            for start, stop in ((0, 3), (3, 4), (4, 9)):
                out = model(ids[:, start:stop], past_key_values=cache)
                cache = out.past_key_values
                logits.append(out.logits)
            assert_close(torch.cat(logits, 1), model(ids).logits, 1e-11)


def test_settings_of_gaussian_heads(hf, gpt2, define, ids_of):
    model = gpt2()
    hf.register_gaussian("wide", offsets=(-2.5,), sigma=2.0)
    hf.register_gaussian("shift", offsets=(-1, -3), kernel="index")
    hf.register_gaussian("narrow", offsets=(-1, 0), kernel="window", window=3)
    define("defined wide", lambda h, i, s, v: sum(gaussian(j - i + 2.5, 2.0) * v[j] for j in s))
    define("defined shift", lambda h, i, s, v: v[i - (1, 3)[h]] if i >= (1, 3)[h] else 0)
    define(
        "defined narrow",
        lambda h, i, s, v: sum(gaussian(j - i - (-1, 0)[h]) * v[j] for j in s if abs(j - i - (-1, 0)[h]) <= 1),
    )
    for name in ("wide", "shift", "narrow"):
        model.set_attn_implementation(name)
        result = model(ids_of(2, 6)).logits
        model.set_attn_implementation("defined " + name)
        assert_close(result, model(ids_of(2, 6)).logits)


def gradient_of(model, part):
    attention = [module for name, module in model.named_modules() if name.endswith(part)]
    return attention[0].weight.grad


def test_training_draws_from_the_softmax(hf, llama, ids_of):
    model = llama().train()
    hf.register_hard("hard, straight", temperature=0.5, straight_through=True)
    for name in ("structattn_hard", "hard, straight"):
        model.set_attn_implementation(name)
        torch.manual_seed(1)
        first = model(ids_of(2, 6), labels=ids_of(2, 6))
        torch.manual_seed(1)
        assert torch.equal(model(ids_of(2, 6)).logits, first.logits)
        assert not torch.equal(model(ids_of(2, 6)).logits, first.logits)
        model.zero_grad()
        first.loss.backward()
        assert (gradient_of(model, "q_proj") != 0).any()
    weights = model(ids_of(2, 6), output_attentions=True).attentions[0].detach()
    assert ((weights.abs() < 1e-12) | ((weights - 1).abs() < 1e-12)).all()


@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
def test_what_is_not_used_gets_no_gradient(hf, llama, ids_of, mechanism):
    model = llama()
    model.set_attn_implementation(f"structattn_{mechanism}")
    model(ids_of(2, 6), labels=ids_of(2, 6)).loss.backward()
    assert gradient_of(model, "q_proj") is None
    assert (gradient_of(model, "v_proj") != 0).any()


@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
def test_training_reduces_the_loss(hf, model, ids_of, mechanism):
    model.set_attn_implementation(f"structattn_{mechanism}")
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(15):
        loss = model(ids_of(4, 8), labels=ids_of(4, 8)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_attention_to_another_sequence(hf, gpt2, ids_of):
    model = gpt2(add_cross_attention=True)
    memory = torch.randn(2, 4, 12, dtype=torch.float64)
    model.set_attn_implementation("structattn_hard")
    expected = model(ids_of(2, 6), encoder_hidden_states=memory).logits
    past = model(ids_of(2, 6)[:, :4], encoder_hidden_states=memory).past_key_values
    rest = model(ids_of(2, 6)[:, 4:], encoder_hidden_states=memory, past_key_values=past).logits
    assert_close(rest, expected[:, 4:], 1e-11)
    model.set_attn_implementation("structattn_gaussian")
    for time in (4, 6):
        with pytest.raises(ValueError, match=rf"cross-attention \({time} queries, 4 keys\)"):
            model(ids_of(2, time), encoder_hidden_states=memory)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
def test_half_precision(hf, llama, ids_of, mechanism, dtype):
    model = llama()
    model.set_attn_implementation(f"structattn_{mechanism}")
    expected = model(ids_of(2, 5)).logits
    with torch.autocast("cpu", dtype):
        assert model.float()(ids_of(2, 5)).logits.dtype == dtype
    result = model.to(dtype)(ids_of(2, 5)).logits
    assert result.dtype == dtype
    if mechanism == "gaussian":  # rounding may make another score the best
        assert_close(result.double(), expected, 0.05)


class Module(torch.nn.Module):
    is_causal = True


def test_masks_of_every_kind(hf, transformers):
    """None, true and false, and numbers added to scores, on the registered functions themselves."""
    query, key, value = torch.randn(3, 2, 4, 5, 6, dtype=torch.float64)
    lower = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    lowest = torch.zeros(1, 1, 5, 5, dtype=torch.float64).masked_fill(~lower, torch.finfo(torch.float64).min)
    for mechanism in ("gaussian", "hard"):
        function = transformers.AttentionInterface()[f"structattn_{mechanism}"]
        outputs = [
            function(Module().eval(), query, key, value, mask)[0]
            for mask in (None, lower, lowest, torch.nn.functional.pad(lower, (0, 2)))
        ]
        assert all(torch.equal(output, outputs[0]) for output in outputs)
        assert outputs[0].shape == (2, 5, 4, 6)
        last = function(Module().eval(), query[:, :, 3:], key, value, None)[0]
        assert_close(last, outputs[0][:, 3:], 1e-15)


def test_rows_that_see_nothing_are_zero(hf, transformers):
    query, key, value = torch.randn(3, 1, 2, 3, 4)
    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    mask[:, :, 1] = False
    for mechanism in ("gaussian", "hard"):
        function = transformers.AttentionInterface()[f"structattn_{mechanism}"]
        for module in (Module().train(), Module().eval()):
            output, _ = function(module, query, key, value, mask)
            assert (output[:, 1] == 0).all()
            assert (output[:, [0, 2]] != 0).any()


def test_biases_count_in_hard_attention(hf, transformers):
    query, key, value = torch.zeros(3, 1, 2, 3, 4)
    value = torch.arange(12.0).view(1, 1, 3, 4).expand(1, 2, 3, 4)
    bias = torch.tensor([[0.0, 2.0, 1.0]]).expand(1, 2, 3, 3)
    function = transformers.AttentionInterface()["structattn_hard"]
    everything = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    output, _ = function(Module().eval(), query, key, value, everything, position_bias=bias)
    assert (output[0, 0] == value[0, 0, 1]).all()
    output, _ = function(Module().eval(), query, key, value, bias)
    assert (output[0, 0] == value[0, 0, 1]).all()


@pytest.mark.parametrize("argument", ["softcap", "s_aux", "cache"])
def test_what_has_no_meaning_here_is_refused(hf, transformers, argument):
    query = torch.zeros(1, 2, 3, 4)
    function = transformers.AttentionInterface()["structattn_hard"]
    with pytest.raises(ValueError, match=f"hard attention does not support '{argument}'"):
        function(Module(), query, query, query, None, **{argument: 1.0})


def test_wrong_settings_are_refused_at_once(hf):
    for wrong in ({"sigma": 0.0}, {"kernel": "round"}, {"kernel": "window", "window": 2}, {"offsets": (math.inf,)}):
        with pytest.raises(ValueError, match=list(wrong)[-1]):
            hf.register_gaussian("wrong", **wrong)
    with pytest.raises(ValueError, match="temperature=-1"):
        hf.register_hard("wrong", temperature=-1)


def test_a_saved_model_is_loaded_with_it(hf, transformers, gpt2, ids_of, tmp_path):
    model = gpt2()
    model.save_pretrained(tmp_path)
    model.set_attn_implementation("structattn_gaussian")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="structattn_gaussian")
    assert_close(again(ids_of(1, 5)).logits, model(ids_of(1, 5)).logits, 1e-12)


@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
def test_beside_stacks(hf, gpt2, lively, ids_of, batch_of, mechanism):
    model = lively(hf.add_stack_attention(gpt2()))
    model.set_attn_implementation(f"structattn_{mechanism}")
    ids, mask = batch_of([ids_of(1, 6)[0], ids_of(1, 3)[0]], "left")
    result = generate(model, ids, mask, do_sample=False)
    assert torch.equal(result, generate(model, ids, mask, do_sample=False, use_cache=False))


@pytest.mark.quick("hard")
@pytest.mark.parametrize("mechanism", ["gaussian", "hard"])
def test_compilation(hf, llama, ids_of, batch_of, mechanism):
    model = llama()
    model.set_attn_implementation(f"structattn_{mechanism}")
    ids, mask = batch_of([ids_of(1, 6)[0], ids_of(1, 4)[0]], "right")
    torch.compiler.reset()  # each test has a model of its own
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    result = compiled(ids, attention_mask=mask, use_cache=False).logits
    assert_close(result[mask.bool()], model(ids, attention_mask=mask).logits[mask.bool()], 1e-11)
