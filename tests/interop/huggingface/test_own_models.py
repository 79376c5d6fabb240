"""The models of this package as models of transformers: cache, inner outputs, vectors as inputs, more ids."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed; pip install 'structattn[hf]'")

import transformers

from structattn.interop import huggingface
from structattn.interop.huggingface.own_models import hidden_states_of
from structattn.support.special_tokens import BOS, EOS

VOCABULARY = 40
SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12}
CAUSAL = {
    "superposition": {"kind": "transformer", **SIZES, "layers": "1.superposition-4"},
    "nondeterministic": {"kind": "transformer", **SIZES, "layers": "nondeterministic-1-2-3.1"},
    "stack pointer, tied": {"kind": "transformer", **SIZES, "layers": "1+stack_pointer", "tied_embeddings": True},
    "rotary": {"kind": "transformer", **SIZES, "layers": 2, "positions": "rotary"},
    "two streams": {"kind": "two_stream", "num_layers": 1, **SIZES},
    "lstm": {"kind": "lstm", "hidden_size": 6, "stack": "superposition-4"},
}
TIED_STREAMS = {"kind": "two_stream", "num_layers": 1, **SIZES, "tied_embeddings": True}
LSTM_WITH_TABLE = {"kind": "lstm", "hidden_size": 6, "embedding_size": 5}
WITH_TABLE = ("superposition", "stack pointer, tied", "rotary")
MASKED = {"kind": "masked", **SIZES, "layers": "1.superposition-4"}
TRANSLATOR = {
    "kind": "encoder_decoder",
    **SIZES,
    "encoder": {"layers": "superposition-4"},
    "decoder": {"layers": "1.nondeterministic-1-2-3"},
}


def assert_close(result, expected, tolerance=1e-11):
    finite = expected.isfinite()
    assert (result.isfinite() == finite).all()
    assert (result[finite] - expected[finite]).norm() <= tolerance * expected[finite].norm()


@pytest.fixture
def own(lively):
    """own(settings) is a model in double precision."""

    def make(settings, model_class="StructattnForCausalLM", **more):
        config = huggingface.StructattnConfig(settings=settings, vocab_size=VOCABULARY, **more)
        return lively(getattr(huggingface, model_class)(config))

    return make


@pytest.fixture
def translator(lively):
    config = huggingface.StructattnSeq2SeqConfig(settings=TRANSLATOR, vocab_size=VOCABULARY, source_vocab_size=30)
    return lively(huggingface.StructattnForSeq2SeqLM(config))


@pytest.fixture
def texts(ids_of):
    return [torch.cat([torch.tensor([BOS]), ids_of(1, time)[0]]) for time in (6, 2, 4)]


def steps_of(model):
    """The number of positions of each call of the inner model, as they are made."""
    calls, step = [], model.model.step
    model.model.step = lambda tokens, state: (calls.append(1), step(tokens, state))[1]
    model.model.register_forward_hook(lambda _, args, y: calls.append(args[0].shape[1]))
    return calls


WAYS = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 0, "num_return_sequences": 2},
    "beams": {"num_beams": 3, "do_sample": False, "num_return_sequences": 2},
}


@pytest.mark.covering(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", CAUSAL)
def test_generation_with_a_cache_as_without(own, texts, batch_of, kind, side, way):
    model = own(CAUSAL[kind])
    ids, mask = batch_of(texts, side)

    def generate(**more):
        torch.manual_seed(11)
        return model.generate(ids, attention_mask=mask, max_new_tokens=5, pad_token_id=0, **WAYS[way], **more)

    assert torch.equal(generate(), generate(use_cache=False))


@pytest.mark.parametrize("kind", CAUSAL)
def test_a_token_costs_one_step(own, texts, kind):
    model = own(CAUSAL[kind])
    calls = steps_of(model)
    out = model.generate(texts[0][None], max_new_tokens=5, do_sample=False, eos_token_id=None)
    assert out.shape == (1, 12)
    assert calls == [7] + [1] * (7 + 4)  # the text at once, then by steps for the state, then each token but the last


@pytest.mark.parametrize("kind", CAUSAL)
def test_pieces_of_any_size_equal_the_whole(own, texts, kind):
    model, ids = own(CAUSAL[kind]), torch.stack([texts[0], texts[0].flip(0)])
    ids[1, 0], cache, logits = BOS, None, []
    for start, stop in ((0, 3), (3, 4), (4, 7)):
        out = model(ids[:, start:stop], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits.append(out.logits)
    assert_close(torch.cat(logits, 1), model(ids).logits)
    cache.crop(-2)
    assert_close(model(ids[:, 5:], past_key_values=cache).logits, model(ids).logits[:, 5:])
    assert model(ids).past_key_values is None


def test_a_cache_of_another_model_is_refused(own, texts):
    model = own(CAUSAL["rotary"])
    with pytest.raises(ValueError, match="expected a cache that the model returned"):
        model(texts[0][None], past_key_values=transformers.DynamicCache())
    with pytest.raises(ValueError, match="use use_cache=False"):
        model(texts[0][None], use_cache=True, output_hidden_states=True)


@pytest.mark.parametrize("way", ["greedy", "beams"])
def test_translation_with_a_cache_as_without(translator, texts, batch_of, way):
    ids, mask = batch_of([text % 27 + 3 for text in texts], "left")
    options = {"attention_mask": mask, "max_new_tokens": 6, "pad_token_id": 0, "decoder_start_token_id": BOS}
    calls = steps_of(translator)
    result = translator.generate(ids, **options, **WAYS[way], eos_token_id=EOS)
    assert len(calls) in (result.shape[1] - 1, 6)  # <bos> at once and by a step, and the others by steps
    assert torch.equal(result, translator.generate(ids, **options, **WAYS[way], eos_token_id=EOS, use_cache=False))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", CAUSAL)
def test_inner_outputs_are_those_of_each_text_alone(own, texts, batch_of, kind, side):
    model = own(CAUSAL[kind])
    ids, mask = batch_of(texts, side)
    found = model(ids, attention_mask=mask, output_hidden_states=True, output_attentions=True)
    for b, text in enumerate(texts):
        alone = model(text[None], output_hidden_states=True, output_attentions=True)
        here = mask[b].bool()
        assert found.hidden_states
        assert found.attentions
        for states, expected in zip(found.hidden_states, alone.hidden_states, strict=True):
            assert_close(states[b, here], expected[0])
        for weights, expected in zip(found.attentions, alone.attentions, strict=True):
            first = expected.shape[-1] - len(text)  # the bottom of a stack
            columns = torch.cat([torch.ones(first, dtype=torch.bool), here])
            assert_close(weights[b][:, here][..., columns], expected[0])


def test_calls_of_other_threads_meanwhile_are_apart(own, texts):
    """Within each call, another thread has texts of other lengths computed."""
    model = own(CAUSAL["superposition"])
    ids, other = texts[0][None], texts[1][None]
    vectors, expected = model.get_input_embeddings()(ids), model(other).logits
    alone, meanwhile, busy = model(ids, output_hidden_states=True).hidden_states, [], []

    def call_within(*_):
        if not busy:
            busy.append(True)
            meanwhile.append(thread.submit(model, other).result().logits)
            busy.clear()

    with ThreadPoolExecutor(1) as thread:
        hook = model.model.layers.blocks[0].register_forward_hook(call_within)
        found = model(ids, output_hidden_states=True).hidden_states
        by_vectors = model(inputs_embeds=vectors, output_hidden_states=True).hidden_states
        hook.remove()
    for result in meanwhile:
        assert_close(result, expected)
    for states in (found, by_vectors):
        assert len(states) == len(alone)
        for one, two in zip(states, alone, strict=True):
            assert_close(one, two)


def test_the_last_hidden_state_gives_the_logits(own, texts):
    model = own(CAUSAL["superposition"])
    found = model(texts[0][None], output_hidden_states=True, output_attentions=True)
    assert len(found.hidden_states) == 3
    assert_close(model.model.output(found.hidden_states[-1]), found.logits[..., 2:])
    assert_close(model.model.embedding(texts[0][None]), found.hidden_states[0])
    weights = found.attentions[0]
    assert weights.shape == (1, 2, 7, 7)
    assert_close(weights.sum(-1), torch.ones(1, 2, 7, dtype=torch.float64))


def test_inner_outputs_of_a_translator(translator, texts, batch_of):
    texts = [text % 27 + 3 for text in texts]
    ids, mask = batch_of(texts, "left")
    target = torch.tensor([[BOS, 4, 5]] * 3)
    options = {"output_hidden_states": True, "output_attentions": True}
    found = translator(ids, attention_mask=mask, decoder_input_ids=target, **options)
    names = (
        "encoder_hidden_states",
        "encoder_attentions",
        "decoder_hidden_states",
        "decoder_attentions",
        "cross_attentions",
    )
    for b, text in enumerate(texts):
        alone = translator(text[None], decoder_input_ids=target[:1], **options)
        for name in names:
            assert found[name]
            for result, expected in zip(found[name], alone[name], strict=True):
                kept = result[b] if name.startswith("decoder") else None
                if name == "encoder_hidden_states":
                    kept = result[b, mask[b].bool()]
                elif kept is None:
                    kept = result[b][..., mask[b].bool()]
                    kept = kept[:, mask[b].bool()] if name == "encoder_attentions" else kept
                assert_close(kept, expected[0])


@pytest.mark.parametrize("kind", WITH_TABLE)
def test_embeddings_may_be_given_in_the_place_of_ids(own, texts, batch_of, kind):
    model = own(CAUSAL[kind])
    ids, mask = batch_of(texts, "left")
    vectors = model.get_input_embeddings()(ids)
    assert vectors.shape == (3, 7, 8)
    assert_close(model(inputs_embeds=vectors, attention_mask=mask).logits, model(ids, attention_mask=mask).logits)
    generated = model.generate(inputs_embeds=vectors, attention_mask=mask, max_new_tokens=4, do_sample=False)
    assert torch.equal(generated, model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False)[:, 7:])
    with pytest.raises(ValueError, match="expected either input_ids or inputs_embeds"):
        model(ids, inputs_embeds=vectors)


def test_a_translator_takes_a_mask_of_any_dtype(translator, texts, batch_of):
    ids, mask = batch_of([text % 27 + 3 for text in texts], "right")
    target = torch.tensor([[BOS, 4, 5]] * 3)
    expected, *others = (
        translator(ids, attention_mask=mask.to(dtype), decoder_input_ids=target).logits
        for dtype in (torch.int64, torch.bool, torch.float32)
    )
    assert all(torch.equal(each, expected) for each in others)


@pytest.mark.parametrize("model_class", ["StructattnModel", "StructattnForSequenceClassification", None])
@pytest.mark.parametrize("settings", [CAUSAL["superposition"], CAUSAL["lstm"], MASKED], ids=lambda each: each["kind"])
def test_ids_past_the_vocabulary_are_refused_by_name(own, texts, settings, model_class):
    """The mask of a masked model is the id after the last."""
    is_masked = settings["kind"] == "masked"
    model = own(settings, model_class or ("StructattnForMaskedLM" if is_masked else "StructattnForCausalLM"))
    ids, most = texts[0][None].clone(), VOCABULARY - 1 + is_masked
    ids[0, -1] = most
    assert model(ids)[0].isfinite().any()
    ids[0, -1] = most + 1
    with pytest.raises(ValueError, match=rf"id {most + 1} is not in the vocabulary of 0 to {most}; where .* no <unk>"):
        model(ids)


@pytest.mark.parametrize(
    ("name", "size"), [("input_ids", 30), ("decoder_input_ids", VOCABULARY), ("labels", VOCABULARY)]
)
def test_ids_past_a_vocabulary_of_a_translator_are_refused_by_name(translator, name, size):
    ids = {"input_ids": torch.tensor([[4, 5, 2]]), "labels": torch.tensor([[4, -100, 2]])}
    assert translator(**ids).loss.isfinite()
    with pytest.raises(ValueError, match=f"id {size} is not in the vocabulary of 0 to {size - 1}"):
        translator(**ids | {name: torch.tensor([[4, size, 2]])})


def test_a_recurrent_model_refuses_vectors(own, texts):
    model, ids = own(LSTM_WITH_TABLE), texts[0][None]
    with pytest.raises(NotImplementedError, match="passes over <bos>, which it knows by its id"):
        model(inputs_embeds=model.get_input_embeddings()(ids))


@pytest.mark.parametrize("kind", ["two streams", "lstm"])
def test_models_without_one_table_have_no_embeddings(own, kind):
    with pytest.raises(NotImplementedError, match="expected one table of embeddings"):
        own(CAUSAL[kind]).get_input_embeddings()


@pytest.mark.parametrize("kind", ["superposition", "stack pointer, tied", "two streams", "lstm"])
def test_more_ids(own, texts, tmp_path, kind):
    model, ids = own(CAUSAL[kind]), texts[0][None].clone()
    expected = model(ids).logits
    model.resize_token_embeddings(VOCABULARY + 3)
    logits = model(ids).logits
    assert logits.shape[-1] == VOCABULARY + 3
    assert_close(logits[..., :VOCABULARY], expected)
    mean = expected[..., 2:].mean(-1, keepdim=True).expand(-1, -1, 3)
    if kind != "stack pointer, tied":  # there the mean includes <pad> and <bos>
        assert_close(logits[..., VOCABULARY:], mean)
    ids[0, -1] = VOCABULARY + 2
    assert model(ids).logits[..., 2:].isfinite().all()
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_close(again(ids).logits, model(ids).logits, 1e-6)
    model.resize_token_embeddings(VOCABULARY - 1, pad_to_multiple_of=8)
    assert model.config.vocab_size == VOCABULARY
    assert_close(model(texts[0][None]).logits, expected)


def test_what_cannot_be_resized(own, translator, texts, tmp_path):
    masked, ids = own(MASKED, "StructattnForMaskedLM"), texts[0][None]
    expected = masked(ids).logits
    for size in (VOCABULARY + 1, VOCABULARY - 1):
        with pytest.raises(ValueError, match="the mask is the id after the last"):
            masked.resize_token_embeddings(size)
        assert masked.config.vocab_size == VOCABULARY
    masked.save_pretrained(tmp_path)  # a refused call changes nothing
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert_close(again(ids).logits, expected, 1e-6)
    causal = own(CAUSAL["rotary"])
    with pytest.raises(ValueError, match="vocabulary_size=2; expected at least 3"):
        causal.resize_token_embeddings(2)
    assert causal.config.vocab_size == VOCABULARY
    with pytest.raises(ValueError, match="two vocabularies"):
        translator.resize_token_embeddings(VOCABULARY + 1)


@pytest.mark.parametrize("kind", ["superposition", "nondeterministic", "two streams"])
def test_gradient_checkpointing_changes_no_gradient(own, texts, kind):
    model, ids = own({**CAUSAL[kind], "dropout": 0.1}).train(), texts[0][None]

    def gradients():
        model.zero_grad()
        torch.manual_seed(8)  # the same dropout
        model(ids, labels=ids).loss.backward()
        return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}

    expected, calls = gradients(), []
    model.activation_checkpointing_enable({"use_reentrant": False})
    model.model.layers.blocks[0].attention.register_forward_hook(lambda *_: calls.append(1))
    results = gradients()
    assert len(calls) == 2  # once more in the backward pass
    assert results.keys() == expected.keys()
    for name, result in results.items():
        assert_close(result, expected[name], 1e-10)


@pytest.mark.parametrize(
    "settings", [CAUSAL["superposition"], CAUSAL["lstm"], TIED_STREAMS, MASKED], ids=lambda each: each["kind"]
)
def test_a_classifier_on_the_weights_of_a_language_model(own, texts, batch_of, tmp_path, settings):
    name = "StructattnForMaskedLM" if settings["kind"] == "masked" else "StructattnForCausalLM"
    language_model = own(settings, name)
    language_model.save_pretrained(tmp_path)
    auto = transformers.AutoModelForSequenceClassification
    model, info = auto.from_pretrained(tmp_path, num_labels=3, output_loading_info=True)
    model.eval()
    assert info["missing_keys"] == {"score.weight"}
    assert 0.005 < model.score.weight.std() < 0.06
    for side in ("left", "right"):
        ids, mask = batch_of(texts, side)
        logits = model(ids, attention_mask=mask).logits
        assert logits.shape == (3, 3)
        for row, text in zip(logits, texts, strict=True):
            states = hidden_states_of(language_model.model, text[None], None)
            position = 0 if settings["kind"] == "masked" else -1
            assert_close(row, model.score(states[0, position]))
    out = model(ids, attention_mask=mask, labels=torch.tensor([0, 2, 1]))
    expected = torch.nn.functional.cross_entropy(out.logits, torch.tensor([0, 2, 1]))
    assert_close(out.loss, expected)
    model.save_pretrained(tmp_path / "classifier")
    again = auto.from_pretrained(tmp_path / "classifier").eval()
    assert torch.equal(again(ids, attention_mask=mask).logits, out.logits)
