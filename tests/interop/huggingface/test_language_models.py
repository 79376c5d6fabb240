"""GPT-2 and RoBERTa as models of runs: their logits are those of transformers, and they run like any other model."""

import json
import shutil
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from pydantic import TypeAdapter

from structattn.loading.evaluate import evaluate
from structattn.loading.runs import load
from structattn.runs.folder import RunFolder
from structattn.settings.models import ModelSettings
from structattn.settings.run import resolve_settings
from structattn.support.errors import CheckpointError, DataError, SettingsError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.writing import write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary
from structattn.training.assembly import initial_learner, make_plan
from structattn.training.run_training import train

SIZES = {"d_model": 12, "d_ff": 16, "num_heads": 2, "num_layers": 2, "max_positions": 14, "dropout": 0.1}
WORDS = ("the", "cat", "dog", "sees", "likes", "a")
SYMBOLS = ("<pad>", "<bos>", "<eos>", "<unk>", *WORDS)
VOCABULARY = len(SYMBOLS)
KINDS, STACKS = ("gpt2", "roberta"), (None, "stack_pointer", {"attention": "superposition", "stack_embedding_size": 3,
                                                              "layers": [-1]})  # fmt: skip
TASKS = {"gpt2": "language_modeling", "roberta": "masked_language_modeling"}
LENGTHS = torch.tensor([7, 3, 5])


def settings_of(kind, stack=None, **more):
    return TypeAdapter(ModelSettings).validate_python({"kind": kind, **SIZES, "stack": stack, **more})


@pytest.fixture
def build(transformers):
    from structattn.interop.huggingface.language_models import build_huggingface

    def make(kind, stack=None, **more):
        model = build_huggingface(settings_of(kind, stack, **more), VOCABULARY)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.3)
        return model.double().eval()

    return make


def tokens():
    drawn = torch.randint(3, VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(0))
    return torch.where(torch.arange(7) < LENGTHS[:, None], drawn, 0)


@torch.no_grad()
@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers_on_each_sequence_alone(build, kind, stack):
    model, ids = build(kind, stack), tokens()
    logits = model(ids, LENGTHS)
    assert logits.shape == (3, 7, VOCABULARY - 2)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model.model(input_ids=ids[row : row + 1, :length]).logits[0, :, 2:VOCABULARY]
        torch.testing.assert_close(logits[row, :length], alone, rtol=1e-10, atol=1e-10)
    assert model.hidden_states(ids, LENGTHS).shape == (3, 7, SIZES["d_model"])


@torch.no_grad()
def test_only_the_positions_asked_for_are_predicted_and_the_mask_is_an_input_only(build):
    model, ids = build("roberta"), tokens()
    assert model.mask == VOCABULARY
    ids[0, 3] = model.mask
    predicted = torch.zeros(3, 7, dtype=torch.bool)
    predicted[0, [1, 3]] = predicted[2, 4] = True
    torch.testing.assert_close(model(ids, LENGTHS, predicted), model(ids, LENGTHS)[predicted])


@pytest.mark.parametrize("kind", KINDS)
def test_explanations_are_the_weights_of_attention_and_stacks(build, kind):
    model, ids = build(kind, STACKS[2]), tokens()
    found = model.explain(ids, LENGTHS)
    assert [(each.layer, each.sublayer) for each in found] == [(0, "attention"), (1, "attention"), (1, "stack")]
    for row, length in enumerate(LENGTHS.tolist()):
        sums = found[0].weights[row, :, :length].sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums))
        assert (found[0].weights[row, :, length:] == 0).all()
    assert (found[0].weights.triu(1) > 0).any() == (kind == "roberta")
    hidden_states = {}
    stack = next(each for each in model.modules() if type(each).__name__ == "StackSublayer")
    hook = stack.register_forward_pre_hook(lambda _, inputs: hidden_states.update(x=inputs[0]))
    model(ids, LENGTHS)
    hook.remove()
    expected = stack.attention.explain(hidden_states["x"], LENGTHS)
    torch.testing.assert_close(found[2].weights, expected.weights, rtol=1e-10, atol=1e-10)


@pytest.fixture
def pretrained(transformers, tmp_path, lively):
    """pretrained(kind) is a saved model with a vocabulary of its own, and that vocabulary."""

    def save(kind, **more):
        if kind == "gpt2":
            ids = {"<|endoftext|>": 7, "dog": 0, "the": 1, "a": 2, "more": 3, "likes": 4, "cat": 5, "sees": 6}
            sizes = {"n_embd": 12, "n_inner": 16, "n_head": 2, "n_layer": 2, "n_positions": 14}
            special = {"bos_token_id": 7, "eos_token_id": 7}
            config = transformers.GPT2Config(vocab_size=8, **sizes, **special, **more)
            model = lively(transformers.GPT2LMHeadModel(config)).float()
        else:
            ids = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "the": 5, "sees": 6, "dog": 7, "cat": 8}
            ids |= {"likes": 9, "<mask>": 10}
            sizes = {"hidden_size": 12, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
            sizes |= {"max_position_embeddings": 16, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
            special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
            config = transformers.RobertaConfig(vocab_size=11, **sizes, **special, **more)
            model = lively(transformers.RobertaForMaskedLM(config)).float()
        model.save_pretrained(tmp_path / kind)
        (tmp_path / kind / "vocab.json").write_text(json.dumps(ids))
        return tmp_path / kind, model, ids

    return save


@torch.no_grad()
@pytest.mark.parametrize("stack", [None, {"attention": "stack_pointer", "gate": True}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_pretrained_weights_follow_the_symbols_of_the_vocabulary(build, pretrained, kind, stack):
    from structattn.interop.huggingface.pretrained import load_pretrained

    folder, theirs, ids = pretrained(kind)
    model = build(kind).float() if stack is None else build(kind, stack).float()
    for gate in (parameter for name, parameter in model.named_parameters() if name.endswith("gate")):
        gate.zero_()
    load_pretrained(model, settings_of(kind, stack, pretrained=folder), SYMBOLS)
    special = {"<bos>": "<|endoftext|>", "<eos>": "<|endoftext|>"} if kind == "gpt2" else {
        "<pad>": "<pad>", "<bos>": "<s>", "<eos>": "</s>", "<unk>": "<unk>"}  # fmt: skip
    rows = torch.tensor([ids.get(special.get(symbol, symbol), -1) for symbol in SYMBOLS] + [ids.get("<mask>", -1)])
    text = torch.tensor([[1, 4, 9, 5, 7, VOCABULARY if kind == "roberta" else 6, 2]])
    known = (rows[2:VOCABULARY] >= 0).nonzero()[:, 0]
    expected = theirs(input_ids=rows[text]).logits[..., rows[known + 2]]
    torch.testing.assert_close(model(text)[..., known], expected, rtol=1e-5, atol=1e-5)


def test_folders_that_do_not_fit_are_refused(build, pretrained, tmp_path):
    from structattn.interop.huggingface.pretrained import digests_of, load_pretrained

    folder, _, _ = pretrained("gpt2")
    fits, model = settings_of("gpt2", pretrained=folder), build("gpt2")

    def refused(reason, settings=fits, symbols=SYMBOLS, error=SettingsError):
        with pytest.raises(error, match=reason):
            load_pretrained(model, settings, symbols)

    refused(
        "has d_model 12, num_layers 2, num_heads 2, d_ff 16, max_positions 14",
        settings_of("gpt2", pretrained=folder, num_layers=3),
    )
    refused("of type 'gpt2'; expected 'roberta'", settings_of("roberta", pretrained=folder))
    refused("1 of the 11 symbols of the data, such as 'horse', are not in", symbols=(*SYMBOLS, "horse"))
    weights = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    name = "transformer.ln_f.weight"  # not a tied one, without which another is missing too
    del weights[name]
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(weights, {"format": "pt"}))
    refused(f"lacks the weights {name}", error=DataError)
    (folder / "model.safetensors").write_bytes(b"rubbish")
    refused("cannot be loaded", error=DataError)
    (folder / "model.safetensors").unlink()
    with pytest.raises(SettingsError, match=r"model\.safetensors: cannot be read: No such file"):
        digests_of(folder)
    folder, _, _ = pretrained("gpt2", activation_function="relu")
    refused("has activation_function 'relu'; only 'gelu_new' is supported")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", {"pad_token_id": None}, "pad_token_id: null; positions are counted from it"),
        ("config.json", {"eos_token_id": [2, 3]}, "eos_token_id: expected an integer"),
        ("tokenizer.json", {"model": None}, "model: expected an object"),
        ("tokenizer.json", {"model": {"vocab": [["a", 0.0], ["b"]]}}, r"model\.vocab\..*: expected"),
        ("tokenizer.json", {"added_tokens": ["<s>"]}, r"added_tokens\.0: expected an object"),
    ],
)
def test_files_that_do_not_say_what_they_should_are_refused_by_name(build, pretrained, file, content, message):
    from structattn.interop.huggingface.pretrained import load_pretrained

    folder, _, _ = pretrained("roberta")
    before = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    (folder / file).write_text(json.dumps(before | content))
    with pytest.raises(DataError, match=rf"{file}: {message}"):
        load_pretrained(build("roberta"), settings_of("roberta", pretrained=folder), SYMBOLS)


def test_the_scores_of_pretrained_weights_are_those_of_transformers(pretrained, tmp_path):
    """From the folder's tokenizer to the cross-entropy of sentences, before any training."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed; pip install 'structattn[mt]'")
    folder, theirs, ids = pretrained("gpt2")
    (folder / "vocab.json").unlink()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, "<|endoftext|>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    lines = ["the cat sees a dog", "a dog likes more", "dog"]
    (tmp_path / "lines.txt").write_text("".join(line + "\n" for line in lines))
    how = TextSettings(level="pretrained", tokenizer=folder)
    prepare_language_modeling(tmp_path / "data", tmp_path / "lines.txt", tmp_path / "lines.txt", settings=how)
    tree = {"kind": "gpt2", **SIZES, "pretrained": str(folder)}
    settings = resolve_settings({"task": "language_modeling", "data": str(tmp_path / "data"), "model": tree})
    plan = make_plan(RunFolder(tmp_path / "run"), settings)
    found = plan.task.validate(initial_learner(plan).model, lambda: None).cross_entropy
    nats = 0.0
    for line in lines:
        text = torch.tensor([[7, *(ids[word] for word in line.split()), 7]])
        logits = theirs(input_ids=text[:, :-1]).logits[0]
        logits = torch.cat([logits, logits.mean(-1, keepdim=True)], dim=-1)  # <unk>, which they do not have
        nats -= logits.log_softmax(-1).gather(1, text[0, 1:, None]).sum().item()
    assert found == pytest.approx(nats / 13, rel=1e-5)


@pytest.fixture
def text(tmp_path):
    """Sentences of the words; each of them depends on the one before."""
    generator = np.random.default_rng(1)

    def line():
        return (4 + (generator.integers(6) + np.cumsum(generator.integers(1, 3, generator.integers(1, 8)))) % 6).astype(
            np.int32
        )

    splits = {name: [line() for _ in range(count)] for name, count in (("train", 30), ("valid", 8), ("test", 4))}
    vocabulary = Vocabulary.from_symbols(WORDS, unknown=True)
    write_prepared(
        tmp_path / "text", kind="sentences", vocabulary=vocabulary, tokenizer={"level": "word"}, splits=splits
    )
    return tmp_path / "text"


@pytest.mark.parametrize("from_folder", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_resumed_evaluated_loaded_and_explained(text, pretrained, tmp_path, interrupted, kind, from_folder):
    folder = pretrained(kind)[0] if from_folder else None
    model = {"kind": kind, **SIZES, "stack": "stack_pointer", "pretrained": None if folder is None else str(folder)}
    training = {"batches": {"kind": "tokens", "max_tokens": 40}, "num_threads": 1, "max_updates": 8}
    training |= {"checkpoint_every": 3, "optimizer": {"learning_rate": 0.01}}
    settings = resolve_settings({"task": TASKS[kind], "data": str(text), "model": model, "training": training})
    summary = train(settings, tmp_path / "undisturbed")
    interrupted(settings, tmp_path / "run", 2, 5)
    for name in ("events.jsonl", "checkpoints/8/model.safetensors", "checkpoints/8/optimizer.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
    if folder is not None:
        shutil.rmtree(folder)  # it is needed for training only
    scores = evaluate(tmp_path / "run", "valid")
    assert scores.cross_entropy == pytest.approx(summary.best_cross_entropy, rel=1e-5)
    run = load(tmp_path / "run")
    digests = run.metadata.get("pretrained")
    assert (None if digests is None else set(digests)) == (
        {"config.json", "model.safetensors", "vocab.json"} if from_folder else None
    )
    (records,) = run.explain(["the cat sees"])
    assert records[0].tokens == ("<bos>", "the", "cat", "sees", *(["<eos>"] if kind == "roberta" else []))
    assert {record.sublayer for record in records} == {"attention", "stack"}


def test_other_pretrained_weights_are_refused_on_resume(text, pretrained, tmp_path, monkeypatch):
    folder, model, _ = pretrained("gpt2")
    tree = {"kind": "gpt2", **SIZES, "pretrained": str(folder)}
    settings = resolve_settings({"task": "language_modeling", "data": str(text), "model": tree})
    monkeypatch.setattr("structattn.training.run_training.train_until_done", lambda run, pause_after: sys.exit())
    with pytest.raises(SystemExit):  # as if the process were killed
        train(settings, tmp_path / "run")
    with torch.no_grad():
        model.transformer.wte.weight[0] += 1
    model.save_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"model\.pretrained: changed since the run started: model\.safetensors"):
        train(settings, tmp_path / "run", resume=True)


def test_missing_pretrained_weights_are_refused_before_anything_is_written(text, tmp_path, transformers):
    tree = {"kind": "gpt2", **SIZES, "pretrained": str(tmp_path / "nowhere")}
    settings = resolve_settings({"task": "language_modeling", "data": str(text), "model": tree})
    with pytest.raises(SettingsError, match=r"model\.pretrained: .*config\.json: cannot be read"):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_positions_have_to_cover_the_longest_example(text, tmp_path, transformers):
    tree = {"kind": "gpt2", **SIZES, "max_positions": 7}
    settings = resolve_settings({"task": "language_modeling", "data": str(text), "model": tree})
    with pytest.raises(SettingsError, match=r"model\.max_positions: train example .* has 8 tokens; the model has 7"):
        train(settings, tmp_path / "run")
