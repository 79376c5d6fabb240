"""What users of transformers do with exported folders, for every kind of model: right, or refused by name."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from tests.interop.export.kinds import CAUSAL, MASKED, TRANSLATORS

from structattn.decoding import greedy_search, start_continuation
from structattn.interop.export.formats import export_run
from structattn.support.special_tokens import BOS, CLASS_OFFSET

KINDS = {
    **{name: (data, settings, "AutoModelForCausalLM") for name, (data, settings, _) in CAUSAL.items()},
    **{name: ("masked", settings, "AutoModelForMaskedLM") for name, (settings, _) in MASKED.items()},
    **{name: (data, settings, "AutoModelForSeq2SeqLM") for name, (data, settings) in TRANSLATORS.items()},
}


@pytest.fixture(autouse=True)
def library():
    found = pytest.importorskip("transformers", reason="transformers is not installed; pip install 'structattn[hf]'")
    found.utils.logging.disable_progress_bar()
    return found


class Exported:
    """A run, and what transformers loads from its folder."""

    def __init__(self, library, run, folder, auto):
        import structattn.interop.huggingface  # noqa: F401  # registers its classes

        self.library, self.run, self.folder, self.auto = library, run, folder, getattr(library, auto)
        if not folder.exists():
            export_run(run, "huggingface", folder)
        self.tokenizer = library.AutoTokenizer.from_pretrained(folder)
        self.target_tokenizer = self.tokenizer
        if (folder / "target_tokenizer").exists():
            self.target_tokenizer = library.AutoTokenizer.from_pretrained(folder / "target_tokenizer")

    def load(self, **options):
        return self.auto.from_pretrained(self.folder, **options).eval()

    def config(self):
        return json.loads((self.folder / "config.json").read_text())

    def texts(self):
        """Texts of different lengths; of a translation the sources and the targets."""
        prepared = self.run.prepared
        if prepared.parallel_sides is not None:
            return list(prepared.texts("valid", "source")[:3]), list(prepared.texts("valid", "target")[:3])
        sequences = prepared.split("valid")
        longest = max((sequences[index] for index in range(min(4, len(sequences)))), key=len)[:9]
        return [prepared.tokenizer.decode(ids) for ids in (longest, longest[:2], longest[:4])]

    def features(self):
        """What a data set would hold for the collator."""
        if self.run.prepared.parallel_sides is None:
            return [dict(self.tokenizer(text)) for text in self.texts()]
        pairs = zip(*self.texts(), strict=True)
        return [
            {**self.tokenizer(source), "labels": self.target_tokenizer(target)["input_ids"]} for source, target in pairs
        ]

    def collator(self):
        if "Seq2Seq" in self.auto.__name__:
            return self.library.DataCollatorForSeq2Seq(self.tokenizer)
        masked = "Masked" in self.auto.__name__
        return self.library.DataCollatorForLanguageModeling(self.tokenizer, mlm=masked, seed=3 if masked else None)


@pytest.fixture(scope="session")
def exported(trained, tmp_path_factory):
    """exported(kind) is the run of a kind and its folder; the same kind gives the same folder."""
    folders = {}

    def load(kind):
        library = pytest.importorskip("transformers")
        data, settings, auto = KINDS[kind]
        folder = folders.setdefault(kind, tmp_path_factory.mktemp("exported") / "folder")
        return Exported(library, trained(data, settings), folder, auto)

    return load


def is_own(model):
    return type(model).__name__.startswith("Structattn")


def nats_of(found, model):
    """Cross-entropy of each text alone, and its tokens: of the run, where the model has no logits for <pad>."""
    nats, count = 0.0, 0
    for feature in found.features():
        ids = torch.tensor([feature["input_ids"]])
        if "labels" in feature:
            labels = torch.tensor([feature["labels"]])
            logits = found.run.model(ids, torch.nn.functional.pad(labels[:, :-1], (1, 0), value=BOS))
        elif is_own(model):
            logits, labels = found.run.model(ids[:, :-1]), ids[:, 1:]
        else:
            logits, labels = model(ids[:, :-1]).logits, ids[:, 1:] + CLASS_OFFSET
        nats -= logits.log_softmax(-1).gather(2, labels[..., None] - CLASS_OFFSET).sum().item()
        count += labels.numel()
    return nats, count


@pytest.mark.quick("gpt2-right", "gpt2, stream-as exported", "superposition-left", "lstm-right", "translator-left")
@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right", "as exported"])
@pytest.mark.parametrize("kind", [name for name in KINDS if name not in MASKED])
def test_the_loss_of_the_standard_collator_is_that_of_the_run(exported, kind, side):
    found = exported(kind)
    model = found.load()
    if side == "left" and not is_own(model):
        pytest.skip("GPT-2 needs padding at the right, as it is exported")
    if side != "as exported":
        found.tokenizer.padding_side = side
    batch = found.collator()(found.features())
    nats, count = nats_of(found, model)
    assert model(**batch).loss.item() == pytest.approx(nats / count, rel=1e-5)


def train_one_step(found, model, folder):
    arguments = found.library.TrainingArguments(
        str(folder), max_steps=1, per_device_train_batch_size=3, logging_steps=1, save_strategy="no", report_to=[],
        use_cpu=True, disable_tqdm=True, seed=1,
    )  # fmt: skip
    trainer = found.library.Trainer(
        model, arguments, train_dataset=found.features(), data_collator=found.collator(),
        processing_class=found.tokenizer,
    )  # fmt: skip
    trainer.train()
    return trainer.state.log_history[0]["loss"]


QUICK = ("gpt2", "gpt2, stack", "superposition", "two streams", "masked", "translator")


@pytest.mark.quick(*QUICK)
@pytest.mark.parametrize("kind", KINDS)
def test_the_trainer_makes_a_step_with_the_loss_of_the_run(exported, tmp_path, kind):
    found = exported(kind)
    model = found.load()
    is_random = kind in MASKED or kind in ("hard", "two streams")  # hard attention samples in training
    nats, count = (0, 1) if is_random else nats_of(found, model)
    if type(model).__name__ == "GPT2LMHeadModel":
        count += len(found.features())  # transformers counts first tokens, too
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for module in model.modules():
        module.dropout = 0.0 if isinstance(getattr(module, "dropout", None), float) else getattr(module, "dropout", 0)
        module.p = 0.0
    loss = train_one_step(found, model, tmp_path)
    assert 0.1 < loss < 20
    assert is_random or loss == pytest.approx(nats / count, abs=1e-3)
    assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())


WITHOUT_AN_IMPORT = """
import sys, torch, transformers
auto, trust, *folders = sys.argv[1:]
options, text = {"trust_remote_code": trust == "True", "local_files_only": True}, sys.stdin.read()
for folder in folders:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    model = getattr(transformers, auto).from_pretrained(folder, **options).eval()
    assert not any("Structattn" in name for name in sys.modules)
    ids = tokenizer([text], return_tensors="pt")["input_ids"]
    inputs = {"decoder_input_ids": torch.tensor([[1, 3, 4]])} if "Seq2Seq" in auto else {}
    print(type(model).__module__, model(ids, **inputs).logits[..., 2:].exp().sum().item())
"""


def in_a_new_process(script, *arguments, text="", **environment):
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], input=text, capture_output=True, text=True, check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"} | environment, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft reads it
@pytest.mark.parametrize("kind", ["superposition", "translator"])
def test_lora_adapts_all_linear_maps(exported, library, kind):
    peft = pytest.importorskip("peft", reason="peft is not installed; pip install peft")
    found = exported(kind)
    model = found.load()
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear"))
    batch = found.collator()(found.features())
    adapted(**batch).loss.backward()
    changed = {name for name, parameter in adapted.named_parameters() if parameter.grad is not None}
    assert {name.split(".lora_")[0].removeprefix("base_model.model.") for name in changed} == linear


@pytest.mark.apart
@pytest.mark.quick("superposition")
@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt2", "gpt2, stack", "superposition", "roberta, stack", "masked", "translator"])
def test_a_folder_loads_without_an_import_of_the_package(exported, tmp_path, kind):
    found = exported(kind)
    texts = found.texts()
    text = texts[0][0] if found.run.prepared.parallel_sides is not None else texts[0]
    model = found.load()
    ours = "auto_map" in found.config()
    assert ours == (kind != "gpt2")
    calls = re.findall(r"from_pretrained\((.*)\)", (found.folder / "README.md").read_text())
    assert calls
    assert all(("trust_remote_code=True" in call) == ours for call in calls)  # without, the library asks and waits
    again = tmp_path / "again"
    model.save_pretrained(again)
    found.tokenizer.save_pretrained(again)
    ids = found.tokenizer([text], return_tensors="pt")["input_ids"]
    inputs = {"decoder_input_ids": torch.tensor([[1, 3, 4]])} if "Seq2Seq" in found.auto.__name__ else {}
    expected = model(ids, **inputs).logits[..., 2:].exp().sum().item()
    arguments = found.auto.__name__, ours, found.folder, again
    loaded = in_a_new_process(WITHOUT_AN_IMPORT, *arguments, text=text, HF_MODULES_CACHE=str(tmp_path / "modules"))
    assert len(loaded.splitlines()) == 2
    for line in loaded.splitlines():
        module, value = line.split()
        assert module == type(model).__module__
        assert float(value) == pytest.approx(expected, rel=1e-5)
    names = {path.name for path in again.iterdir() if path.suffix == ".py"}
    assert names == ({"modeling_structattn.py"} if ours else set())


@pytest.mark.quick(*QUICK)
@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision(exported, kind):
    found = exported(kind)
    batch = found.collator()(found.features())
    model = found.load(dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    logits, expected = model(**batch).logits, found.load()(**batch).logits
    assert logits.dtype == torch.bfloat16
    real = batch["labels"] != -100
    error = (logits[real][:, CLASS_OFFSET:].float() - expected[real][:, CLASS_OFFSET:]).norm()
    assert error <= 0.05 * expected[real][:, CLASS_OFFSET:].norm()
    torch.testing.assert_close(found.load().to(torch.bfloat16)(**batch).logits, logits, rtol=0, atol=0)


@pytest.mark.quick(*QUICK)
@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_the_meta_device(exported, kind):
    found = exported(kind)
    batch = found.collator()(found.features())
    loaded = found.load()
    with torch.device("meta"):
        model = found.auto.from_config(loaded.config).eval()
    if not is_own(model):  # transformers reads masks, and looks for padding where there are none
        del batch["attention_mask"]
        model.config.pad_token_id = None
    on_meta = {name: value.to("meta") for name, value in batch.items()}
    logits, expected = model(**on_meta).logits, loaded(**batch).logits
    assert logits.is_meta
    assert logits.shape == expected.shape


def pipeline_of(found, model, **options):
    task = {"Masked": "fill-mask", "Causal": "text-generation"}[found.auto.__name__.removeprefix("AutoModelFor")[:6]]
    return found.library.pipeline(task, model=model, tokenizer=found.tokenizer, device="cpu", **options)


@pytest.mark.quick("gpt2", "gpt2, stack", "superposition", "stack pointer")
@pytest.mark.parametrize("kind", CAUSAL)
def test_a_pipeline_continues_texts_as_the_run_does(exported, kind, caplog, recwarn):
    found = exported(kind)
    generate = pipeline_of(found, found.load())
    prompts = [text for text in found.texts() if text]
    caplog.clear()
    found.library.utils.logging.enable_propagation()
    results = generate(prompts, batch_size=2, do_sample=False, max_new_tokens=5)
    assert [record.message for record in caplog.records] == []
    assert [str(warning.message) for warning in recwarn] == []
    run = found.run
    for prompt, (result,) in zip(prompts, results, strict=True):
        inputs = found.tokenizer([prompt], return_tensors="pt")["input_ids"]
        (expected,) = greedy_search(run.model, start_continuation(run.model, inputs), 5)
        texts = [run.prepared.tokenizer.decode(ids) for ids in (inputs[0], [*inputs[0].tolist(), *expected.text])]
        continuation = texts[1].removeprefix(texts[0])
        assert result["generated_text"] == prompt + continuation
        (new,) = generate([prompt], return_full_text=False, do_sample=False, max_new_tokens=5)[0]
        assert new["generated_text"] == continuation


@pytest.mark.parametrize("kind", MASKED)
def test_a_pipeline_fills_masks(exported, kind):
    found = exported(kind)
    text = next(text for text in found.texts() if "dog" in text.split()).replace("dog", "<mask>", 1)
    results = pipeline_of(found, found.load())(text)
    ids = found.tokenizer([text], return_tensors="pt")["input_ids"]
    at = ids[0].tolist().index(found.tokenizer.mask_token_id)
    logits = found.run.model(ids, torch.tensor([ids.shape[1]]))[0, at]
    assert results[0]["token"] == int(logits.argmax()) + CLASS_OFFSET
    assert results[0]["sequence"] == text.replace("<mask>", results[0]["token_str"])


@pytest.mark.quick("right-gpt2", "left-superposition", "right-superposition", "left-translator")
@torch.no_grad()
@pytest.mark.parametrize("kind", [name for name in KINDS if name not in MASKED])
@pytest.mark.parametrize("side", ["left", "right"])
def test_generation_from_padded_texts(exported, kind, side, caplog):
    found = exported(kind)
    model = found.load()
    texts = found.texts()[0] if found.run.prepared.parallel_sides is not None else found.texts()
    caplog.clear()
    found.library.utils.logging.enable_propagation()
    batch = found.tokenizer(texts, padding=True, padding_side=side, return_tensors="pt")
    together = model.generate(**batch, do_sample=False, max_new_tokens=5)
    warnings = [record.message for record in caplog.records]
    if side == "right" and not is_own(model):
        assert any("right-padding was detected" in message for message in warnings)
        return
    for text, row in zip(texts, together, strict=True):
        alone = model.generate(**found.tokenizer([text], return_tensors="pt"), do_sample=False, max_new_tokens=5)[0]
        left, right = (found.target_tokenizer.decode(each, skip_special_tokens=True) for each in (alone, row))
        assert left == right


@pytest.mark.quick(*QUICK)
@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_saved_models_come_back(exported, tmp_path, kind):
    found = exported(kind)
    model, batch = found.load(), found.collator()(found.features())
    expected = model(**batch).logits
    model.save_pretrained(tmp_path / "saved")
    found.tokenizer.save_pretrained(tmp_path / "saved")
    again = found.auto.from_pretrained(tmp_path / "saved").eval()
    assert type(again) is type(model)
    assert torch.equal(again(**batch).logits, expected)
    tokenizer = found.library.AutoTokenizer.from_pretrained(tmp_path / "saved")
    features = found.features()
    found.tokenizer = tokenizer
    assert found.features() == features


@pytest.mark.quick("left-gpt2", "right-gpt2")
@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt2", "gpt2, stack", "tied, learned"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_call_that_the_card_of_a_gpt2_names_gives_the_scores_of_the_run(exported, kind, side):
    found = exported(kind)
    card = (found.folder / "README.md").read_text()
    code = card[card.rindex("```python") + len("```python") :].partition("```")[0]
    lines = code.strip().splitlines()
    inputs = found.tokenizer(found.texts(), padding=True, padding_side=side, return_tensors="pt")
    scope = {"inputs": inputs, "model": found.load()}
    exec(lines[0], scope)
    found_scores = eval(lines[1], scope)
    for text, row, mask in zip(found.texts(), found_scores, inputs["attention_mask"].bool(), strict=True):
        ids = torch.tensor([found.tokenizer(text)["input_ids"]])
        expected = found.run.model(ids).log_softmax(-1)[0]
        torch.testing.assert_close(row[mask], expected, rtol=1e-5, atol=1e-5)
