"""GPT-2 and RoBERTa with stacks: what they compute, how they are saved, and that they learn."""

import copy
import json
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import MappingProxyType

import pytest
import torch

TOLERANCE = 1e-11
STACKS = {
    "pointer": {"attention": "stack_pointer"},
    "pointer, learned bottom": {"attention": "stack_pointer", "bottom": "learned"},
    "superposition": {"attention": "superposition", "stack_embedding_size": 5},
    "nondeterministic": {
        "attention": "nondeterministic",
        "num_states": 2,
        "stack_alphabet_size": 2,
        "stack_embedding_size": 3,
    },
}


@pytest.fixture
def hf(transformers):
    from structattn.interop import huggingface

    return huggingface


@pytest.fixture(params=STACKS.values(), ids=STACKS.keys())
def stack(request):
    return request.param


@pytest.fixture(params=["gpt2", "roberta"])
def plain(request):
    return request.getfixturevalue(request.param)()


def assert_close(result, expected, tolerance=TOLERANCE):
    assert (result - expected).norm() <= tolerance * expected.norm()


def test_a_closed_gate_changes_nothing(hf, plain, stack, ids_of):
    stacked = hf.add_stack_attention(plain, {**stack, "gate": True})
    assert type(stacked).__name__ == "Stack" + type(plain).__name__
    assert torch.equal(stacked(ids_of(2, 9)).logits, plain(ids_of(2, 9)).logits)


def test_each_block_is_followed_by_its_stack(hf, plain, lively, stack, ids_of):
    """h <- h + S(h) on the block's output, by the plain model's blocks and the layer alone."""
    stacked = lively(hf.add_stack_attention(plain, stack))
    plain.load_state_dict(stacked.state_dict(), strict=False)
    base = stacked.base_model
    blocks = base.h if hasattr(base, "h") else base.encoder.layer
    for parameter in plain.base_model.parameters():
        parameter.requires_grad_(False)
    hidden = stacked(ids_of(2, 9), output_hidden_states=True).hidden_states
    plain_blocks = plain.base_model.h if hasattr(base, "h") else plain.base_model.encoder.layer
    causal = {"attention_mask": torch.ones(9, 9, dtype=torch.bool).tril()[None, None]} if hasattr(base, "h") else {}
    for i in range(2):  # the last state has been normalised
        h = plain_blocks[i](hidden[i], **causal)
        assert_close(hidden[i + 1], h + blocks[i].stack.attention(h))


def test_stacks_go_where_they_are_wanted(hf, plain, stack):
    stacked = hf.add_stack_attention(plain, {**stack, "layers": [0, -1]})
    base = stacked.base_model
    blocks = base.h if hasattr(base, "h") else base.encoder.layer
    assert [block.stack is not None for block in blocks] == [True, False, True]


@pytest.mark.parametrize("layers", [[3], [-4], [0, -3]])
def test_layers_that_do_not_exist_or_exist_twice_are_refused(hf, gpt2, layers):
    with pytest.raises(ValueError, match="layers"):
        hf.add_stack_attention(gpt2(), {"layers": layers})


def test_the_new_model_is_like_the_old_one(hf, gpt2):
    plain = gpt2().train().to(torch.bfloat16)
    plain.generation_config.max_new_tokens = 7
    plain.set_attn_implementation("eager")
    stacked = hf.add_stack_attention(plain)
    assert stacked.training
    assert stacked.dtype == torch.bfloat16
    assert stacked.generation_config.max_new_tokens == 7
    assert stacked.config._attn_implementation == "eager"
    assert not any(a is b for a in stacked.parameters() for b in plain.parameters())
    assert stacked.lm_head.weight is stacked.transformer.wte.weight


def test_models_of_another_structure_are_refused(hf, transformers, gpt2):
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_heads": 2}
    others = {
        r"found encoder\.block of 2, decoder\.block of 2": transformers.T5ForConditionalGeneration(
            transformers.T5Config(vocab_size=9, num_layers=2, **sizes)
        ),
        "of num_hidden_layers 3 blocks, found none": transformers.AlbertModel(
            transformers.AlbertConfig(
                vocab_size=9,
                embedding_size=8,
                hidden_size=8,
                intermediate_size=8,
                num_hidden_layers=3,
                num_attention_heads=2,
            )
        ),
        "expected a model without stacks": hf.add_stack_attention(gpt2()),
    }
    for reason, model in others.items():
        with pytest.raises(ValueError, match=rf"cannot be inserted into a {type(model).__name__}.*{reason}"):
            hf.add_stack_attention(model)


def test_names_that_are_none_of_transformers(hf):
    for name in ("StackFoo", "StackGenerationConfig", "Stackpipeline", "Foo"):
        with pytest.raises(AttributeError, match=name):
            getattr(hf, name)


def test_settings_are_checked(hf):
    for wrong, message in (
        ({"attention": "superposition"}, r"^stack\.stack_embedding_size: missing$"),
        ({"gates": True}, r"^stack\.gates: no such field; did you mean gate\? \[expected one of attention, bottom, "),
        ({"attention": "queue"}, "^stack: 'queue' is not one of .*stack_trans; .*import the file that registers it$"),
        ({"bottom": "rock"}, r"^stack\.bottom: expected '.*' or 'learned', got 'rock'$"),
        ({"layers": ["a"]}, r"^stack\.layers\.0: expected an integer, got 'a'$"),
        (3, "^stack: expected settings, as {field: value}, got 3$"),
    ):
        with pytest.raises(ValueError, match=message):
            hf.StackGPT2Config(stack=wrong)
    config = hf.StackGPT2Config()
    with pytest.raises(ValueError, match=r"^stack\.vector: no such field"):
        config.stack = {"vector": 3}
    config.stack = hf.SuperpositionStack(stack_embedding_size=3, layers=(1,))
    assert config.stack["layers"] == [1]


def test_an_unknown_stack_is_refused_with_those_that_can_be_added_and_the_way_to_add_one(hf, gpt2):
    plain = gpt2()
    known = "expected one of nondeterministic, stack_pointer, stack_trans, superposition"
    with pytest.raises(ValueError, match=known) as caught:
        hf.add_stack_attention(plain, "superpositon-16")
    assert type(caught.value) is ValueError
    assert str(caught.value).startswith("stack: 'superpositon-16' in 'superpositon-16': ")
    assert "did you mean superposition?" in str(caught.value)
    assert str(caught.value).endswith("in Python, import the file that registers it")
    with pytest.raises(ValueError, match="stack is None; expected settings, a mapping or a short form"):
        hf.add_stack_attention(plain, None)


def test_settings_of_any_mechanism_that_can_be_added_are_taken(hf, gpt2):
    from structattn.settings.stacks import StackTrans

    given = StackTrans(attention="stack_trans", stack_embedding_size=4, num_heads=2)
    forms = (given, MappingProxyType(given.model_dump()), given.model_dump())
    stacked = [hf.add_stack_attention(gpt2(), each, layers=[-1]) for each in forms]
    assert all(each.config.stack == stacked[0].config.stack for each in stacked)
    assert stacked[0].config.stack["attention"] == "stack_trans"
    assert stacked[0].config.stack["stack_embedding_size"] == 4
    assert type(stacked[0].transformer.h[-1].stack.attention).__name__ == "StackTransAttention"


def test_saved_models_come_back_by_themselves(hf, plain, lively, stack, ids_of, tmp_path, transformers):
    stacked = lively(hf.add_stack_attention(plain, {**stack, "gate": True, "layers": [1, 2]}))
    stacked.save_pretrained(tmp_path)
    auto = transformers.AutoModelForCausalLM if stacked.can_generate() else transformers.AutoModelForMaskedLM
    again = auto.from_pretrained(tmp_path)
    assert type(again) is type(stacked)
    assert again.config.stack == stacked.config.stack
    assert json.loads((tmp_path / "config.json").read_text())["stack"]["layers"] == [1, 2]
    assert again.state_dict().keys() == stacked.state_dict().keys()
    assert all(torch.equal(saved, stacked.state_dict()[name]) for name, saved in again.state_dict().items())
    assert_close(again(ids_of(2, 7)).logits, stacked(ids_of(2, 7)).logits)


def test_all_auto_classes_know_the_models(hf, transformers, gpt2, roberta):
    from structattn.interop.huggingface.stack_models import stacked_classes

    families = [stacked_classes(config) for config in (transformers.GPT2Config, transformers.RobertaConfig)]
    small = {"StackGPT2Config": gpt2().config.to_dict(), "StackRobertaConfig": roberta().config.to_dict()}
    for family in families:
        for auto, (model_class,) in family.items():
            config_class = model_class.config_class
            settings = {**small[config_class.__name__], "model_type": config_class.model_type, "is_decoder": True}
            model = auto.from_config(config_class.from_dict(settings))
            assert type(model) is model_class
            assert any("stack.attention.projection" in name for name, _ in model.named_parameters())
            assert model(torch.tensor([[5, 6, 7]]))[0] is not None
            assert transformers.AutoConfig.for_model(config_class.model_type).stack["attention"] == "stack_pointer"


def test_a_plain_folder_can_be_given_stacks(hf, plain, stack, ids_of, tmp_path, caplog):
    plain.save_pretrained(tmp_path)
    stacked_class = getattr(hf, "Stack" + type(plain).__name__)
    stacked, info = stacked_class.from_pretrained(tmp_path, stack={**stack, "gate": True}, output_loading_info=True)
    assert stacked.config.stack["attention"] == stack["attention"]
    assert not info["unexpected_keys"]
    assert all(".stack." in key for key in info["missing_keys"])
    assert_close(stacked(ids_of(2, 7)).logits, plain(ids_of(2, 7)).logits)
    for name, parameter in stacked.named_parameters():
        if name.endswith(("gate", "stack.attention.bottom", "projection.bias")):
            assert (parameter == 0).all()
        elif ".stack." in name:
            assert 0.01 < parameter.std() < 0.04  # the model's initializer_range is 0.02


@pytest.mark.parametrize("name", ["stack_pointer", "stack_trans", "superposition-4", "nondeterministic-2-3-2"])
def test_new_stacks_begin_alike_in_a_model_and_in_a_folder_of_one(hf, plain, name, tmp_path):
    plain.save_pretrained(tmp_path)
    torch.manual_seed(1)
    loaded = getattr(hf, "Stack" + type(plain).__name__).from_pretrained(tmp_path, stack=name)
    torch.manual_seed(1)
    added = dict(hf.add_stack_attention(plain, name).named_parameters())
    for key, parameter in loaded.named_parameters():
        assert torch.equal(parameter, added[key]), key
    loaded.save_pretrained(tmp_path / "stacked")
    generator = torch.get_rng_state()
    type(loaded).from_pretrained(tmp_path / "stacked")
    assert torch.equal(torch.get_rng_state(), generator), "loading whole models draws no random numbers"


def test_it_learns(hf, plain, lively, stack, ids_of):
    stacked = lively(hf.add_stack_attention(plain, stack)).train()
    optimizer = torch.optim.Adam(stacked.parameters(), lr=1e-2)
    ids = ids_of(4, 8)
    losses = []
    for _ in range(12):
        loss = stacked(ids, labels=ids).loss
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        assert all(parameter.grad is not None for name, parameter in stacked.named_parameters() if ".stack." in name)
        optimizer.zero_grad()
    assert losses[-1] < 0.8 * losses[0]


def gradients(model, ids):
    model.zero_grad()
    torch.manual_seed(8)  # the same dropout
    model(ids, labels=ids).loss.backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def test_gradient_checkpointing_changes_no_gradient(hf, plain, lively, stack, ids_of):
    stacked = lively(hf.add_stack_attention(plain, stack)).train()
    stacked.config.use_cache = False  # else transformers says that it leaves the cache out
    expected = gradients(stacked, ids_of(2, 9))
    stacked.activation_checkpointing_enable({"use_reentrant": False})
    results = gradients(stacked, ids_of(2, 9))
    assert len(results) == len(expected)
    for result, reference in zip(results, expected, strict=True):
        assert_close(result, reference)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_equals_its_members_alone(hf, plain, lively, stack, ids_of, batch_of, side):
    stacked = lively(hf.add_stack_attention(plain, stack))
    rows = [ids_of(1, time)[0] for time in (7, 3, 5)]
    ids, mask = batch_of(rows, side)
    positions = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if hasattr(plain, "transformer") else {}
    together = stacked(ids, attention_mask=mask, **positions).logits
    for b, row in enumerate(rows):
        assert_close(together[b][mask[b].bool()], stacked(row[None]).logits[0])


def test_threads_that_call_one_model_have_their_own_padding(hf, plain, lively, ids_of, batch_of):
    stacked = lively(hf.add_stack_attention(plain, STACKS["superposition"]))
    batches = [batch_of([ids_of(1, time)[0] for time in times], "right") for times in ((7, 3), (2, 7), (7, 7))]
    expected = [stacked(ids, attention_mask=mask).logits for ids, mask in batches]
    begun = Barrier(len(batches))

    def wait_for_the_others(module, args):  # the blocks are called when all calls have begun
        begun.wait(timeout=100)

    stacked.get_input_embeddings().register_forward_pre_hook(wait_for_the_others)
    with ThreadPoolExecutor(len(batches)) as threads:
        results = list(threads.map(lambda batch: stacked(batch[0], attention_mask=batch[1]).logits, batches))
    for result, reference in zip(results, expected, strict=True):
        assert_close(result, reference)


def test_copies_have_paddings_of_their_own(hf, gpt2, lively, ids_of, batch_of):
    stacked = lively(hf.add_stack_attention(gpt2(), STACKS["superposition"]))
    ids, mask = batch_of([ids_of(1, time)[0] for time in (7, 3)], "right")
    again, block, own = copy.deepcopy(stacked), stacked.transformer.h[0], stacked.transformer.h[1]
    assert block.running_call is own.running_call
    assert again.transformer.h[0].running_call is again.transformer.h[1].running_call is not own.running_call
    assert_close(again(ids, attention_mask=mask).logits, stacked(ids, attention_mask=mask).logits)


def test_padding_between_tokens_is_stepped_over(hf, lively, roberta, stack, ids_of):
    stacked = lively(hf.add_stack_attention(roberta(), stack))
    ids, mask = ids_of(2, 6), torch.tensor([[1, 0, 1, 1, 0, 1], [1, 1, 1, 1, 1, 1]])
    positions = torch.tensor([[1, 0, 2, 3, 0, 4], [1, 2, 3, 4, 5, 6]])
    together = stacked(ids, attention_mask=mask, position_ids=positions).logits
    kept = mask[0].bool()
    alone = stacked(ids[:1, kept], position_ids=positions[:1, kept]).logits
    assert_close(together[:1, kept], alone)


def test_packed_rows_are_refused(hf, gpt2):
    stacked = hf.add_stack_attention(gpt2())
    with pytest.raises(ValueError, match="packed"):
        stacked(torch.tensor([[5, 6, 7, 8]]), position_ids=torch.tensor([[0, 1, 0, 1]]))


def test_masks_that_hide_what_is_padding_are_refused(hf, gpt2):
    stacked = hf.add_stack_attention(gpt2())
    for shape in ((1, 1, 2, 2), (1, 2, 2)):
        with pytest.raises(ValueError, match=re.escape(f"attention_mask has shape {shape}; a model with stacks needs")):
            stacked(torch.tensor([[5, 6]]), attention_mask=torch.ones(shape, dtype=torch.bool))
    with pytest.raises(ValueError, match="attention_mask has 1 positions; expected at least 2"):
        stacked(torch.tensor([[5, 6]]), attention_mask=torch.ones(1, 1))


def test_embeddings_may_be_given_in_the_place_of_ids(hf, plain, lively, ids_of, batch_of):
    stacked = lively(hf.add_stack_attention(plain))
    ids, mask = batch_of([ids_of(1, 6)[0], ids_of(1, 4)[0]], "right")
    embeddings = stacked.get_input_embeddings()(ids)
    positions = {} if hasattr(plain, "transformer") else {"position_ids": mask.cumsum(1) * mask}
    by_embeddings = stacked(inputs_embeds=embeddings, attention_mask=mask, **positions).logits
    assert_close(by_embeddings, stacked(ids, attention_mask=mask).logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(hf, plain, lively, stack, ids_of, dtype):
    stacked = lively(hf.add_stack_attention(plain, stack))
    expected = stacked(ids_of(2, 9)).logits
    with torch.autocast("cpu", dtype):
        assert_close(stacked.float()(ids_of(2, 9)).logits.double(), expected, 0.05)
    assert_close(stacked.to(dtype)(ids_of(2, 9)).logits.double(), expected, 0.05)


def test_hidden_states_and_attentions_are_all_there(hf, plain, stack, ids_of):
    stacked = hf.add_stack_attention(plain, stack)
    stacked.set_attn_implementation("eager")
    outputs = stacked(ids_of(2, 5), output_hidden_states=True, output_attentions=True)
    assert len(outputs.hidden_states) == 4
    assert [weights.shape for weights in outputs.attentions] == [(2, 2, 5, 5)] * 3


@pytest.mark.quick("nondeterministic")
def test_compilation(hf, gpt2, lively, stack, ids_of, batch_of):
    stacked = lively(hf.add_stack_attention(gpt2(), {**stack, "layers": [1]}))
    ids, mask = batch_of([ids_of(1, 4)[0], ids_of(1, 3)[0]], "right")
    torch.compiler.reset()  # each test has a model of its own
    compiled = torch.compile(stacked, fullgraph=True, backend="aot_eager")
    result = compiled(ids, attention_mask=mask, use_cache=False).logits
    assert_close(result[mask.bool()], stacked(ids, attention_mask=mask).logits[mask.bool()])
