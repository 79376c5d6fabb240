"""A cache holds the states of stacks: generation with it equals generation without."""

import copy

import pytest
import torch

TOLERANCE = 1e-11
STACKS = {
    "pointer": {"attention": "stack_pointer"},
    "pointer, learned bottom": {"attention": "stack_pointer", "bottom": "learned"},
    "superposition": {"attention": "superposition", "stack_embedding_size": 5, "layers": [0, 2]},
    "nondeterministic": {
        "attention": "nondeterministic",
        "num_states": 2,
        "stack_alphabet_size": 2,
        "stack_embedding_size": 3,
        "layers": [1],
    },
}


@pytest.fixture(params=STACKS.values(), ids=STACKS.keys())
def model(request, transformers, gpt2, lively):
    from structattn.interop.huggingface import add_stack_attention

    return lively(add_stack_attention(gpt2(), request.param))


@pytest.fixture
def pointer_model(transformers, gpt2, lively):
    from structattn.interop.huggingface import add_stack_attention

    return lively(add_stack_attention(gpt2()))


@pytest.fixture
def prompts(ids_of):
    return [ids_of(1, time)[0] for time in (6, 2, 4, 6)]


def assert_close(result, expected, tolerance=TOLERANCE):
    assert (result - expected).norm() <= tolerance * expected.norm()


WAYS = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 0},
    "beams": {"num_beams": 3, "do_sample": False, "num_return_sequences": 2},
    "sampled beams": {"num_beams": 3, "do_sample": True, "num_return_sequences": 3},
    "several samples": {"do_sample": True, "num_return_sequences": 3},
}


def generate(model, ids, mask, **way):
    torch.manual_seed(11)
    return model.generate(ids, attention_mask=mask, max_new_tokens=9, **way)


@pytest.mark.covering(1)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_with_a_cache_as_without(model, prompts, batch_of, way):
    ids, mask = batch_of(prompts, "left")
    result = generate(model, ids, mask, **way)
    assert result.shape[1] > 12
    assert torch.equal(result, generate(model, ids, mask, use_cache=False, **way))


@pytest.mark.parametrize("way", ["greedy", "beams"])
def test_a_left_padded_batch_as_its_members_alone(model, prompts, batch_of, way):
    together = generate(model, *batch_of(prompts, "left"), **WAYS[way])
    copies = WAYS[way].get("num_return_sequences", 1)
    for b, prompt in enumerate(prompts):
        alone = generate(model, prompt[None], torch.ones_like(prompt[None]), **WAYS[way])
        rows = together[b * copies : (b + 1) * copies, 6 - len(prompt) :]
        assert torch.equal(rows[:, : alone.shape[1]], alone)
        assert (rows[:, alone.shape[1] :] == 0).all()


def test_scores_of_every_step(model, prompts, batch_of):
    ids, mask = batch_of(prompts, "left")
    out = generate(model, ids, mask, do_sample=False, output_logits=True, return_dict_in_generate=True)
    slow = generate(
        model, ids, mask, do_sample=False, output_logits=True, return_dict_in_generate=True, use_cache=False
    )
    for result, expected in zip(out.logits, slow.logits, strict=True):
        assert_close(result, expected)


@pytest.mark.parametrize("cuts", [(1, 2, 3), (4, 5), (3, 7)])
def test_pieces_of_any_size(model, ids_of, cuts):
    ids, cache, logits = ids_of(2, 9), None, []
    for start, stop in zip((0, *cuts), (*cuts, 9), strict=True):
        out = model(ids[:, start:stop], past_key_values=cache)
        cache = out.past_key_values
        logits.append(out.logits)
    assert_close(torch.cat(logits, 1), model(ids, use_cache=False).logits)


def test_gradients_flow_through_the_steps(model, ids_of):
    ids = ids_of(2, 6)
    weight = torch.randn(2, 6, 40, dtype=torch.float64)
    out = model(ids[:, :3])
    rest = model(ids[:, 3:], past_key_values=out.past_key_values).logits
    parameters = list(model.parameters())
    results = torch.autograd.grad(torch.cat([out.logits, rest], 1), parameters, weight)
    expected = torch.autograd.grad(model(ids).logits, parameters, weight)
    for result, reference in zip(results, expected, strict=True):  # saturated ones cancel to far below the cotangent
        assert (result - reference).norm() <= 1e-10 * max(reference.norm(), weight.norm())


def positions(mask):
    return (mask.cumsum(1) - 1).clamp(min=0)


def test_padding_within_a_later_piece(model, ids_of):
    """As when replies of different lengths are added to a batch of conversations."""
    ids = ids_of(3, 8)
    mask = torch.tensor([[0, 0, 1, 1, 1, 0, 1, 1], [1, 1, 1, 1, 0, 0, 0, 1], [0, 0, 1, 1, 1, 1, 1, 1]])
    at, cache, logits = positions(mask), None, []
    for start, stop in ((0, 4), (4, 7), (7, 8)):
        out = model(
            ids[:, start:stop],
            attention_mask=mask[:, :stop],
            position_ids=at[:, start:stop],
            past_key_values=cache,
        )
        cache = out.past_key_values
        logits.append(out.logits)
    together = torch.cat(logits, 1)
    for b in range(3):
        kept = mask[b].bool()
        assert_close(together[b, kept], model(ids[b : b + 1, kept]).logits[0])


def next_logits(model, cache, ids, mask=None):
    at = None if mask is None else positions(mask)[:, -1:]
    return model(ids, past_key_values=cache, attention_mask=mask, position_ids=at).logits


@pytest.mark.parametrize("steps", [0, 2])
@torch.no_grad()  # only then does a cache let itself be copied
def test_a_cache_can_be_reordered_repeated_and_thinned(model, ids_of, steps):
    ids = ids_of(3, 7)
    mask = torch.ones(3, 7, dtype=torch.int64)
    mask[1, :3] = 0
    cache = model(ids[:, :4], attention_mask=mask[:, :4], position_ids=positions(mask)[:, :4]).past_key_values
    for t in range(4, 4 + steps):
        next_logits(model, cache, ids[:, t : t + 1], mask[:, : t + 1])
    new, now = ids[:, 4 + steps : 5 + steps], mask[:, : 5 + steps]
    expected = next_logits(model, copy.deepcopy(cache), new, now)

    order = torch.tensor([2, 2, 1])
    reordered = copy.deepcopy(cache)
    reordered.reorder_cache(order)
    assert_close(next_logits(model, reordered, new[order], now[order]), expected[order])

    chosen = torch.tensor([2, 1])
    for indices in (chosen, torch.tensor([False, True, True])):
        thinned = copy.deepcopy(cache)
        thinned.batch_select_indices(indices)
        assert_close(next_logits(model, thinned, new[indices], now[indices]), expected[indices])

    repeated = copy.deepcopy(cache)
    repeated.batch_repeat_interleave(2)
    twice = torch.arange(3).repeat_interleave(2)
    assert_close(next_logits(model, repeated, new[twice], now[twice]), expected[twice])

    cache.reset()
    again = model(ids[:, :4], past_key_values=cache).logits
    assert_close(again, model(ids[:, :4]).logits)


@pytest.mark.parametrize("with_configuration", [True, False])
def test_a_cache_made_by_hand(transformers, model, ids_of, with_configuration):
    cache = transformers.DynamicCache(config=model.config) if with_configuration else transformers.DynamicCache()
    ids = ids_of(2, 6)
    model(ids[:, :5], past_key_values=cache)
    assert_close(next_logits(model, cache, ids[:, 5:]), model(ids).logits[:, 5:])


def test_roberta_as_a_decoder(transformers, roberta_decoder, lively, ids_of):
    from structattn.interop.huggingface import add_stack_attention

    for stack in STACKS.values():
        model = lively(add_stack_attention(roberta_decoder(), stack))
        ids = ids_of(2, 5)
        mask = torch.ones_like(ids)
        for way in ("greedy", "beams"):
            result = generate(model, ids, mask, **WAYS[way])
            assert torch.equal(result, generate(model, ids, mask, use_cache=False, **WAYS[way]))


def test_a_decoder_with_an_encoder(transformers, gpt2, lively, ids_of):
    from structattn.interop.huggingface import add_stack_attention

    model = lively(add_stack_attention(gpt2(add_cross_attention=True)))
    ids, memory = ids_of(2, 6), torch.randn(2, 5, 12, dtype=torch.float64)
    cache = model(ids[:, :4], encoder_hidden_states=memory).past_key_values
    rest = model(ids[:, 4:], encoder_hidden_states=memory, past_key_values=cache).logits
    assert_close(rest, model(ids, encoder_hidden_states=memory, use_cache=False).logits[:, 4:])


@torch.no_grad()
def test_the_positions_of_the_last_call_can_be_taken_back(model, ids_of):
    ids, mask = ids_of(2, 9), torch.ones(2, 9, dtype=torch.int64)
    mask[0, :2] = mask[1, 3] = 0
    at, expected = positions(mask), model(ids, attention_mask=mask, position_ids=positions(mask)).logits[:, 5:]

    def process(start, stop, cache, wrong=0):
        more = torch.ones(2, wrong, dtype=torch.int64)
        return model(
            torch.cat([ids[:, start:stop], more], 1),
            attention_mask=torch.cat([mask[:, :stop], more], 1),
            position_ids=torch.cat([at[:, start:stop], more], 1),
            past_key_values=cache,
        )

    cache = process(0, 3, None, wrong=2).past_key_values
    cache.crop(-2)
    process(3, 5, cache, wrong=3)
    cache.crop(-1)
    cache.crop(-2)
    assert_close(process(5, 9, cache).logits, expected)
    with pytest.raises(ValueError, match="5 positions are to be removed; only the 4 of the last call"):
        cache.crop(-5)


@pytest.mark.parametrize("way", [{"prompt_lookup_num_tokens": 3}, {"assistant": True}], ids=["lookup", "assistant"])
def test_assisted_generation_is_that_of_the_model_alone(model, gpt2, ids_of, way, monkeypatch):
    from structattn.interop.huggingface.cache import StackCacheLayer

    cropped, crop = [], StackCacheLayer.crop
    monkeypatch.setattr(StackCacheLayer, "crop", lambda self, n: (cropped.append(n), crop(self, n)))
    ids = ids_of(1, 4).repeat(1, 3)
    more = {"assistant_model": gpt2()} if "assistant" in way else way
    result = generate(model, ids, torch.ones_like(ids), do_sample=False, **more)
    assert torch.equal(result, generate(model, ids, torch.ones_like(ids), do_sample=False))
    assert min(cropped) < 0


def test_other_caches_are_refused(transformers, pointer_model, gpt2, ids_of):
    ids = ids_of(1, 5)
    static = transformers.StaticCache(config=pointer_model.config, max_cache_len=20)
    with pytest.raises(ValueError, match="StaticLayer"):
        pointer_model(ids, past_key_values=static)
    filled = gpt2()(ids).past_key_values
    with pytest.raises(ValueError, match="a DynamicLayer of 5 positions"):
        pointer_model(ids, past_key_values=filled)
    mine = pointer_model(ids).past_key_values
    mine.layers[0].history = None
    with pytest.raises(ValueError, match="6 positions; expected 1: 0 that the stack has processed and 1 new ones"):
        pointer_model(ids[:, :1], past_key_values=mine)
