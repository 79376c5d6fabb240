"""Every family of decoders and encoders with every stack: what users of transformers do with them."""

import copy
import os
import pickle
import subprocess
import sys
from itertools import product

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed; pip install 'structattn[hf]'")

import transformers
from tests.interop.huggingface.families import DECODERS, ENCODERS, plain_model

from structattn.interop import huggingface
from structattn.interop.huggingface import add_stack_attention

TOLERANCE = 1e-11
STACKS = {
    "pointer": {"attention": "stack_pointer"},
    "superposition": {"attention": "superposition", "stack_embedding_size": 5},
    "nondeterministic": {
        "attention": "nondeterministic",
        "num_states": 2,
        "stack_alphabet_size": 2,
        "stack_embedding_size": 3,
    },
}
ALL = [*DECODERS, *ENCODERS]
DONE = ("llama", "gpt_neox", "bert")  # in each use in the quick tests; the others in one


def cases(families, uses=(None,)):
    """Family x stack x use; quick is the next stack with each family, with three of them in each use."""
    found = []
    for number, family in enumerate(families):
        for stack, use in product(STACKS, uses):
            one = stack == list(STACKS)[number % len(STACKS)] and (family in DONE or use == next(iter(uses)))
            values = (family, stack) if use is None else (family, stack, use)
            marks = () if one else pytest.mark.slow
            found.append(pytest.param(*values, marks=marks, id="-".join(values)))
    return found


def assert_close(result, expected, tolerance=TOLERANCE):
    assert (result - expected).norm() <= tolerance * expected.norm()


def positions(mask):
    return (mask.cumsum(1) - 1).clamp(min=0)


@pytest.fixture
def model_of(lively):
    """A model with stacks, in double precision."""
    return lambda family, stack, **more: lively(add_stack_attention(plain_model(family), STACKS[stack], **more))


@pytest.mark.parametrize(("family", "stack"), cases(ALL))
def test_a_closed_gate_changes_nothing(lively, ids_of, family, stack):
    plain = lively(plain_model(family))
    stacked = add_stack_attention(plain, STACKS[stack], gate=True)
    assert torch.equal(stacked(ids_of(2, 9)).logits, plain(ids_of(2, 9)).logits)
    with torch.no_grad():
        for name, parameter in stacked.named_parameters():
            if name.endswith("gate"):
                parameter.fill_(1)
    opened = stacked(ids_of(2, 9)).logits
    assert (opened - plain(ids_of(2, 9)).logits).norm() > 1e-5


@pytest.mark.parametrize(("family", "stack"), cases(ALL))
def test_each_block_is_followed_by_its_stack(model_of, ids_of, family, stack):
    """h <- h + S(h): what a block returns is the sum of what its plain class returns and of the layer alone."""
    stacked, inputs, outputs, alone = model_of(family, stack, layers=[0]), [], [], []
    block = next(each for each in stacked.modules() if getattr(each, "stack", None) is not None)
    block.register_forward_hook(lambda _, given, y: outputs.append(y[0] if isinstance(y, tuple) else y))
    block.stack.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    stacked(ids_of(2, 9))
    assert_close(outputs[0], inputs[0] + block.stack.attention(inputs[0]))
    sublayer, block.stack = block.stack, None
    block.register_forward_hook(lambda _, given, y: alone.append(y[0] if isinstance(y, tuple) else y))
    stacked(ids_of(2, 9))
    assert torch.equal(alone[0], inputs[0])
    assert sublayer.layer == 0


@pytest.mark.parametrize(("family", "stack", "side"), cases(ALL, ("left", "right")))
def test_a_padded_batch_equals_its_members_alone(model_of, ids_of, batch_of, family, stack, side):
    stacked = model_of(family, stack)
    rows = [ids_of(1, time)[0] for time in (7, 3, 5)]
    ids, mask = batch_of(rows, side)
    first = 1 if family == "roberta" else 0  # its positions count from the id of the padding + 1
    together = stacked(ids, attention_mask=mask, position_ids=positions(mask) + first).logits
    for b, row in enumerate(rows):
        assert_close(together[b][mask[b].bool()], stacked(row[None]).logits[0])


@pytest.mark.parametrize(("family", "stack"), cases(DECODERS))
def test_pieces_of_any_size_equal_the_whole(model_of, ids_of, family, stack):
    stacked, ids, cache, logits = model_of(family, stack), ids_of(2, 9), None, []
    for start, stop in ((0, 4), (4, 5), (5, 7), (7, 8), (8, 9)):
        out = stacked(ids[:, start:stop], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits.append(out.logits)
    assert_close(torch.cat(logits, 1), stacked(ids, use_cache=False).logits, 1e-6)  # GPT-J has angles in float32


WAYS = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 0},
    "beams": {"num_beams": 3, "do_sample": False, "num_return_sequences": 2},
}


@pytest.mark.parametrize(("family", "stack", "way"), cases(DECODERS, WAYS))
def test_generation_processes_each_token_once(model_of, ids_of, batch_of, family, stack, way):
    stacked, widths = model_of(family, stack), []
    ids, mask = batch_of([ids_of(1, 6)[0], ids_of(1, 3)[0]], "left")

    def generate(**more):
        torch.manual_seed(11)
        return stacked.generate(ids, attention_mask=mask, max_new_tokens=6, **WAYS[way], **more)

    expected = generate(use_cache=False)
    sublayer = next(each for each in stacked.modules() if type(each).__name__ == "StackSublayer")
    sublayer.register_forward_pre_hook(lambda _, given: widths.append(given[0].shape[1]))
    assert torch.equal(generate(), expected)
    assert widths == [6] + [1] * (len(widths) - 1)
    assert len(widths) == expected.shape[1] - 6 or way == "beams"


def gradients(model, ids):
    model.zero_grad()
    torch.manual_seed(8)  # the same dropout
    model(ids, labels=ids, **({"use_cache": False} if model.can_generate() else {})).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize(("family", "stack"), cases(ALL))
def test_gradient_checkpointing_changes_no_gradient(model_of, ids_of, family, stack):
    stacked, calls = model_of(family, stack), []
    stacked.train()
    expected = gradients(stacked, ids_of(2, 9))
    stacked.activation_checkpointing_enable({"use_reentrant": False})
    sublayer = next(each for each in stacked.modules() if type(each).__name__ == "StackSublayer")
    sublayer.register_forward_pre_hook(lambda _, given: calls.append(1))
    results = gradients(stacked, ids_of(2, 9))
    assert len(calls) == 2  # the stack is computed again in the backward pass
    assert results.keys() == expected.keys()
    for name, result in results.items():
        assert_close(result, expected[name], 1e-10)


@pytest.mark.parametrize(("family", "stack"), cases(ALL))
def test_saved_models_come_back(model_of, ids_of, tmp_path, family, stack):
    stacked = model_of(family, stack, layers=[-1], gate=True)
    stacked.save_pretrained(tmp_path)
    again = getattr(huggingface, type(stacked).__name__).from_pretrained(tmp_path)
    assert type(again) is type(stacked)
    assert again.config.stack == stacked.config.stack
    assert again.config.stack["layers"] == [-1]
    assert_close(again(ids_of(2, 7)).logits, stacked(ids_of(2, 7)).logits, 1e-6)  # some keep constants in float32
    auto = transformers.AutoModelForCausalLM if stacked.can_generate() else transformers.AutoModelForMaskedLM
    assert type(auto.from_pretrained(tmp_path)) is type(stacked)
    assert (
        type(transformers.AutoModel.from_pretrained(tmp_path)).__name__ == f"Stack{type(stacked.base_model).__name__}"
    )


@pytest.mark.parametrize("family", ALL)
def test_a_model_can_be_copied_and_pickled(model_of, ids_of, family):
    """As torch.save and processes of users do it; nothing of ours loads a pickle."""
    model, ids = model_of(family, "superposition"), ids_of(2, 5)
    expected = model(ids)[0]
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(ids)[0], expected)
        assert [*map(type, again.modules())] == [*map(type, model.modules())]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("family", DONE)
def test_implementations_of_attention_agree(model_of, ids_of, batch_of, family, implementation):
    stacked = model_of(family, "superposition")
    ids, mask = batch_of([ids_of(1, 6)[0], ids_of(1, 3)[0]], "right")
    expected = stacked(ids, attention_mask=mask).logits[mask.bool()]
    stacked.set_attn_implementation(implementation)
    assert_close(stacked(ids, attention_mask=mask).logits[mask.bool()], expected, 1e-6)  # some use float32


@pytest.mark.parametrize("family", DONE)
def test_a_plain_folder_can_be_given_stacks(lively, ids_of, tmp_path, family):
    plain = lively(plain_model(family))
    plain.save_pretrained(tmp_path)
    stacked_class = getattr(huggingface, f"Stack{type(plain).__name__}")
    stack = {**STACKS["nondeterministic"], "gate": True, "layers": [0]}
    stacked, info = stacked_class.from_pretrained(tmp_path, stack=stack, output_loading_info=True)
    assert not info["unexpected_keys"]
    assert info["missing_keys"]
    assert all(".stack." in key for key in info["missing_keys"])
    assert_close(stacked(ids_of(2, 7)).logits, plain(ids_of(2, 7)).logits, 1e-6)
    deviation = {
        name: parameter.std().item() for name, parameter in stacked.named_parameters() if "projection.weight" in name
    }
    assert all(0.01 < each < 0.04 for each in deviation.values())  # the models' initializer_range is 0.02
    assert deviation
    loaded = add_stack_attention(type(plain).from_pretrained(tmp_path), stack)
    loaded.save_pretrained(tmp_path / "stacked")
    again, info = type(stacked).from_pretrained(tmp_path / "stacked", output_loading_info=True)
    assert not info["unexpected_keys"]
    assert not info["missing_keys"]
    assert_close(again(ids_of(2, 7)).logits, plain(ids_of(2, 7)).logits, 1e-6)


@pytest.mark.covering(1)
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("family", DONE)
def test_the_trainer_makes_an_epoch(ids_of, tmp_path, family, stack):
    stacked = add_stack_attention(plain_model(family), STACKS[stack], gate=True)
    before = {name: value.clone() for name, value in stacked.state_dict().items()}
    arguments = transformers.TrainingArguments(
        str(tmp_path), num_train_epochs=1, per_device_train_batch_size=4, learning_rate=0.05, logging_steps=1,
        report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    rows = [{"input_ids": row, "labels": row} for row in ids_of(1, 6).repeat(16, 1)]
    trainer = transformers.Trainer(stacked, arguments, train_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    changed = {name for name, value in stacked.state_dict().items() if not torch.equal(value, before[name])}
    assert {name for name, _ in stacked.named_parameters() if ".stack." in name and "bottom" not in name} <= changed
    (checkpoint,) = tmp_path.glob("checkpoint-*")
    again = type(stacked).from_pretrained(checkpoint).eval()
    assert torch.equal(again(ids_of(1, 6)).logits, stacked.eval()(ids_of(1, 6)).logits)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_label_smoothing_of_the_trainer_is_that_of_the_plain_model(ids_of, tmp_path, family):
    plain = plain_model(family).eval()
    arguments = transformers.TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, report_to=[], use_cpu=True)
    ids = ids_of(2, 7)

    def loss(model):
        return transformers.Trainer(model, arguments).compute_loss(model, {"input_ids": ids, "labels": ids}).item()

    assert loss(add_stack_attention(plain, gate=True)) == pytest.approx(loss(plain), rel=1e-6)


@pytest.mark.covering(1)
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft reads it
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("family", DONE)
def test_adapters_of_low_rank_on_top(model_of, ids_of, tmp_path, family, stack):
    peft = pytest.importorskip("peft", reason="peft is not installed; pip install peft")
    stacked, ids = model_of(family, stack, gate=True), ids_of(2, 6)
    targets = {"llama": ["q_proj", "v_proj"], "gpt_neox": ["query_key_value"], "bert": ["query", "value"]}[family]
    config = peft.LoraConfig(r=2, target_modules=targets, modules_to_save=["stack"])
    adapted = peft.get_peft_model(stacked, config)
    assert_close(adapted(ids).logits, stacked(ids).logits)
    optimizer = torch.optim.Adam([each for each in adapted.parameters() if each.requires_grad], lr=0.01)
    for _ in range(3):
        adapted(ids, labels=ids).loss.backward()
        optimizer.step()
    changed = {name for name, each in adapted.named_parameters() if each.requires_grad}
    assert all("lora_" in name or ".stack.modules_to_save." in name for name in changed)
    assert any(name.endswith("gate") for name in changed)
    expected = adapted.eval()(ids).logits
    adapted.save_pretrained(tmp_path)
    torch.manual_seed(3)
    again = peft.PeftModel.from_pretrained(model_of(family, stack, gate=True), tmp_path)
    assert_close(again(ids).logits, expected, 1e-5)
    assert_close(adapted.merge_and_unload()(ids).logits, expected)


def test_a_classifier_whose_base_an_auto_model_builds(ids_of, batch_of, tmp_path):
    config = plain_model("llama", num_labels=3).config
    stacked = add_stack_attention(transformers.LlamaForSequenceClassification(config), "superposition-4")
    ids, mask = batch_of([ids_of(1, 6)[0], ids_of(1, 4)[0]], "left")
    stacked.save_pretrained(tmp_path)
    again, info = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert sum(type(each).__name__ == "StackSublayer" for each in again.modules()) == 2
    assert torch.equal(again(ids, attention_mask=mask).logits, stacked.eval()(ids, attention_mask=mask).logits)


@pytest.mark.parametrize("family", DONE)
def test_hidden_states_are_those_after_the_stacks(model_of, ids_of, family):
    stacked, outputs = model_of(family, "superposition"), []
    sublayer = next(each for each in stacked.modules() if type(each).__name__ == "StackSublayer")
    sublayer.register_forward_hook(lambda _, given, y: outputs.append(y))
    stacked.set_attn_implementation("eager")
    for model in (stacked, stacked.base_model):
        found = model(ids_of(2, 5), output_hidden_states=True, output_attentions=True)
        assert len(found.hidden_states) == 3
        assert torch.equal(found.hidden_states[1], outputs.pop())
        assert [weights.shape for weights in found.attentions] == [(2, 2, 5, 5)] * 2


IN_A_NEW_PROCESS = """
import sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
print(type(model).__module__, type(model).__name__, model(torch.tensor([[5, 6, 7]])).logits.sum().item())
"""


@pytest.mark.slow
def test_a_folder_loads_without_an_import_of_the_package(tmp_path):
    stacked = add_stack_attention(plain_model("llama"), "superposition-4")
    stacked.save_pretrained(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS, str(tmp_path / "model")], capture_output=True, text=True, check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules")}, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    module, name, value = done.stdout.split()
    assert (module, name) == ("structattn.interop.huggingface", "StackLlamaForCausalLM")
    assert float(value) == pytest.approx(stacked.eval()(torch.tensor([[5, 6, 7]])).logits.sum().item(), rel=1e-4)
