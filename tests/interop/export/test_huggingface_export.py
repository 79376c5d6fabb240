"""Hugging Face folders: logits and texts of transformers are those of the run; what cannot be expressed is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from tests.interop.export.kinds import CAUSAL, GAUSSIAN, MASKED, SIZES, STACKS, TIED, TRANSLATOR

from structattn.decoding import greedy_search, start_continuation, start_translation
from structattn.interop.export.formats import export_run, model_card
from structattn.interop.export.input_form import input_form
from structattn.interop.export.tokenizer import make_tokenizer
from structattn.loading.runs import open_run
from structattn.runs.folder import RunFolder
from structattn.settings.run import resolve_settings
from structattn.support.errors import UsageError
from structattn.support.special_tokens import BOS, CLASS_OFFSET, EOS
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.prepared import open_prepared
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.tokenization.tokenizers import SymbolTokenizer
from structattn.text.tokenization.vocabulary import Vocabulary
from structattn.training.run_training import train


@pytest.fixture(autouse=True)
def library():
    found = pytest.importorskip("transformers", reason="transformers is not installed; pip install 'structattn[hf]'")
    found.utils.logging.disable_progress_bar()
    return found


@pytest.fixture
def exported(library, tmp_path):
    """exported(run, auto class) is the model and the tokenizer that transformers loads from the folder."""
    import structattn.interop.huggingface  # noqa: F401  # registers its classes

    def load(run, auto):
        export_run(run, "huggingface", tmp_path / "exported", "mit")
        options = {"trust_remote_code": False, "local_files_only": True}
        tokenizer = library.AutoTokenizer.from_pretrained(tmp_path / "exported", **options)
        return auto.from_pretrained(tmp_path / "exported", **options).eval(), tokenizer

    return load


def lines_of(run):
    """Texts of the validation data, as the run decodes them."""
    sequences = run.prepared.split("valid")
    return [run.prepared.tokenizer.decode(sequences[index]) for index in range(min(4, len(sequences)))]


def equal_logits(found, expected):
    """The logits of ids from 2 on, without that of an added ``<unk>``."""
    found = found[..., CLASS_OFFSET : CLASS_OFFSET + expected.shape[-1]]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", CAUSAL)
def test_a_causal_model_has_the_logits_and_the_greedy_texts_of_the_run(exported, trained, library, kind):
    name, settings, class_name = CAUSAL[kind]
    run = trained(name, settings)
    model, tokenizer = exported(run, library.AutoModelForCausalLM)
    assert type(model).__name__ == class_name
    form = input_form(run)
    for line in lines_of(run):
        inputs = tokenizer([line], return_tensors="pt")
        assert inputs["input_ids"][0].tolist() == [*form.before, *run.prepared.tokenizer.encode(line), *form.after]
        equal_logits(model(**inputs).logits, run.model(inputs["input_ids"]))
        prompt = inputs["input_ids"][:, :3]
        (expected,) = greedy_search(run.model, start_continuation(run.model, prompt), 8)
        found = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=8)
        text = tokenizer.decode(found[0], skip_special_tokens=True)
        assert text.removeprefix(" ") == run.prepared.tokenizer.decode([*prompt[0].tolist(), *expected.text])


@torch.no_grad()
@pytest.mark.parametrize("kind", ["tied", "superposition", "lstm"])
def test_padding_at_the_left_changes_nothing(exported, trained, library, kind):
    name, settings, _ = CAUSAL[kind]
    run = trained(name, settings)
    model, tokenizer = exported(run, library.AutoModelForCausalLM)
    sequence = run.prepared.split("valid")[0]
    lines = [run.prepared.tokenizer.decode(ids) for ids in (sequence[:2], sequence)]
    batch = tokenizer(lines, padding=True, padding_side="left", return_tensors="pt")
    assert batch["attention_mask"][0, 0] == 0
    together = model.generate(**batch, do_sample=False, max_new_tokens=6)
    for line, ids in zip(lines, together, strict=True):
        alone = model.generate(**tokenizer([line], return_tensors="pt"), do_sample=False, max_new_tokens=6)[0]
        texts = (tokenizer.decode(each, skip_special_tokens=True) for each in (alone, ids))
        assert len(set(texts)) == 1


def test_a_text_with_the_word_mask_is_refused(tmp_path):
    text = tmp_path / "text"
    text.write_text("a <mask> dog\nthe <mask>\n")
    prepare_language_modeling(tmp_path / "data", text, text)
    tree = {"task": "masked_language_modeling", "data": str(tmp_path / "data"), "model": MASKED["masked"][0]}
    train(resolve_settings({**tree, "training": {"max_updates": 1}}), tmp_path / "run")
    with pytest.raises(UsageError, match="tokenizer: <mask> is a token of the text"):
        export_run(open_run(tmp_path / "run", "last"), "huggingface", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_a_gpt2_has_the_dropout_of_the_run(trained, exported, library):
    model = {**CAUSAL["tied"][1], "dropout": 0.25, "embedding_dropout": 0.5, "attention_dropout": 0.0}
    config = exported(trained("sentences", model), library.AutoModelForCausalLM)[0].config
    assert (config.resid_pdrop, config.embd_pdrop, config.attn_pdrop) == (0.25, 0.5, 0.0)


@torch.no_grad()
@pytest.mark.parametrize("kind", MASKED)
def test_a_masked_model_has_the_logits_of_the_run(exported, trained, library, kind):
    settings, class_name = MASKED[kind]
    run = trained("masked", settings)
    model, tokenizer = exported(run, library.AutoModelForMaskedLM)
    assert type(model).__name__ == class_name
    assert tokenizer.mask_token_id == run.prepared.vocabulary.size
    lines = lines_of(run)
    batch = tokenizer([lines[0].replace("dog", "<mask>"), lines[1]], padding=True, return_tensors="pt")
    ids, lengths = batch["input_ids"], batch["attention_mask"].sum(1)
    assert (ids == tokenizer.mask_token_id).any()
    found, expected = model(**batch).logits, run.model(ids, lengths)
    for row, length in enumerate(lengths):
        equal_logits(found[row, :length, : run.prepared.vocabulary.size], expected[row, :length])


@torch.no_grad()
@pytest.mark.covering(1)
@pytest.mark.parametrize("vocabulary", ["joint", "separate"])
@pytest.mark.parametrize("settings", [TRANSLATOR, STACKS, GAUSSIAN], ids=["softmax", "stacks", "gaussian and hard"])
def test_a_translator_has_the_logits_and_the_greedy_translations_of_the_run(
    exported, trained, library, tmp_path, settings, vocabulary
):
    if vocabulary == "separate" and settings is GAUSSIAN:
        settings = {**settings, "tied_embeddings": "two-way"}
    run = trained(vocabulary, settings)
    model, tokenizer = exported(run, library.AutoModelForSeq2SeqLM)
    sides, target_tokenizer = run.prepared.sides, tokenizer
    if vocabulary == "separate":
        target_tokenizer = library.AutoTokenizer.from_pretrained(tmp_path / "exported", subfolder="target_tokenizer")
    lines, targets = run.prepared.texts("valid", "source")[:4], run.prepared.texts("valid", "target")[:4]
    batch = tokenizer(list(lines), padding=True, return_tensors="pt")
    ids, lengths = batch["input_ids"], batch["attention_mask"].sum(1)
    assert ids[0, : lengths[0]].tolist() == [*sides.source.encode(lines[0]), EOS]
    inputs = torch.tensor([[BOS, *sides.target.encode(targets[0])]]).repeat(len(lines), 1)
    equal_logits(model(**batch, decoder_input_ids=inputs).logits, run.model(ids, inputs, lengths))
    found = model.generate(**batch, do_sample=False, max_new_tokens=7)
    expected = greedy_search(run.model, start_translation(run.model, ids, lengths), 7)
    for row, hypothesis in zip(found, expected, strict=True):
        assert target_tokenizer.decode(row, skip_special_tokens=True) == sides.target.decode(hypothesis.text)


LEVELS = {
    "word": {},
    "character": {},
    "byte": {},
    "bpe": {"vocabulary_size": 30},
    "bpe, start": {"level": "bpe", "vocabulary_size": 30, "marker": "start"},
    "bpe, none": {"level": "bpe", "vocabulary_size": 30, "marker": "none"},
    "bpe, normalized": {"level": "bpe", "vocabulary_size": 30, "nfkc": True, "lowercase": True},
}
LINES = ["the cat", "  Hi \t there\u00e9  dog", "unseen x\u4e2d words", "", "a\u00a0b \ufb01", "a" * 600]


@pytest.mark.parametrize("case", LEVELS)
def test_tokenizers_encode_and_decode_like_the_run(prepared_data, case):
    options = {"level": case, **LEVELS[case]}
    text = open_prepared(prepared_data("sentences", **options)).tokenizer
    found = make_tokenizer(text, (BOS,), (EOS,))
    for line in LINES:
        try:
            expected = text.encode(line)
        except Exception:  # a symbol that the vocabulary does not have
            continue
        assert found.encode(line).ids == [BOS, *expected, EOS]
        assert found.decode(expected) == text.decode(expected)


@pytest.mark.parametrize("level", ["character", "byte"])
def test_lines_of_the_data_may_begin_with_spaces(prepared_data, level):
    text = open_prepared(prepared_data("sentences", level)).tokenizer
    make_tokenizer(text, (BOS,), (), [text.encode(line) for line in (" ", " the cat", "  the cat ")])


class Reversed(SymbolTokenizer):
    def encode(self, line):
        return super().encode(line)[::-1]


def test_lines_are_compared_that_have_the_first_symbol_of_a_vocabulary_without_an_unknown_one():
    """Its id is that of ``<unk>`` elsewhere."""
    text = TextTokenizer(Reversed("word", Vocabulary.from_symbols(["a", "b"])), None)
    with pytest.raises(UsageError, match="would not encode 'b a' like the run does"):
        make_tokenizer(text, (BOS,), (), [text.encode("a b")])


@pytest.mark.parametrize("case", LEVELS)
def test_what_continues_a_text_is_decoded_with_its_leading_space(prepared_data, case):
    options = {"level": case, **LEVELS[case]}
    text = open_prepared(prepared_data("sentences", **options)).tokenizer
    found = make_tokenizer(text, (BOS,), (), continued=True)
    line, space = "the cat likes a dog .", "" if options.get("marker") == "none" else " "
    prompt, whole = (text.encode(each) for each in ("the cat", line))
    assert whole[: len(prompt)] == prompt
    continuation = found.decode(whole[len(prompt) :])
    assert continuation == text.decode(whole)[len(text.decode(prompt)) :]
    assert continuation.startswith(space)
    assert found.decode([]) == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "bpe", "vocabulary_size": 30, "marker": "continuation"}, "marker continuation"),
        ({"level": "word", "unknown_classes": True}, "classes of unknown words"),
    ],
)
def test_tokenizers_that_differ_are_refused(prepared_data, options, message):
    text = open_prepared(prepared_data("sentences", **options)).tokenizer
    with pytest.raises(UsageError, match=message):
        make_tokenizer(text, (BOS,), ())


def test_words_made_of_characters_are_refused_by_name_and_nothing_is_left(trained, tmp_path):
    run = trained("sentences", {**SIZES, "layers": 1, "embedding": {"kind": "c2w", "character_embedding_size": 4}})
    with pytest.raises(UsageError, match=r"model.embedding: c2w cannot be exported to huggingface: it needs the char"):
        export_run(run, "huggingface", tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []


def test_the_card_names_licence_data_and_settings(trained, tmp_path):
    run = trained("sentences", TIED)
    export_run(run, "huggingface", str(tmp_path / "exported"), "mit")
    card = (tmp_path / "exported/README.md").read_text()
    assert card.startswith("---\nlicense: mit\n")
    for expected in (run.prepared.digest, run.metadata["settings_digest"], "tied_embeddings: true"):
        assert expected in card
    assert "\ndata: " not in card
    config = json.loads((tmp_path / "exported/config.json").read_text())
    assert config["model_type"] == "gpt2"
    assert "auto_map" not in config


@pytest.mark.parametrize("name", ["my licence: see\nlanguage: de # below", "no", "---", "[mit"])
def test_the_header_of_the_card_has_any_licence_as_it_was_given(trained, name):
    _, header, _ = model_card(trained("sentences", TIED), name, "", "transformers").split("---\n", 2)
    expected = {"license": name, "library_name": "transformers", "tags": ["structattn", "language_modeling"]}
    assert yaml.safe_load(header) == expected


def test_the_card_names_the_library_and_escapes_the_name(trained, tmp_path):
    run = trained("sentences", TIED)
    named = replace(run, run_dir=shutil.copytree(run.run_dir, tmp_path / "50% *<b>* [a_b] &amp;"))
    card = model_card(named, "mit", "", "onnx")
    assert "library_name: onnx\n" in card
    assert "\n# 50% \\*\\<b\\>\\* \\[a\\_b\\] \\&amp;\n" in card
    assert "library_name" not in model_card(run, "mit", "")


def test_the_card_leaves_out_a_path_of_data_that_takes_several_lines(trained, tmp_path):
    run = trained("sentences", TIED)
    shutil.copytree(run.run_dir, tmp_path / "run")
    settings = run.settings.model_copy(update={"data": Path("/home/a user/" + "data of mine/" * 20)})
    RunFolder(tmp_path / "run").write_settings(settings)
    card = model_card(replace(run, run_dir=tmp_path / "run"), "mit", "")
    assert "data of mine/" not in card
    shown = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert {**shown, "data": str(settings.data)} == settings.model_dump(mode="json")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("gpt2", {"max_new_tokens": 10}),
        ("tied, no positions", {"max_new_tokens": 512}),
        ("rotary", {"max_new_tokens": 512}),
    ],
)
def test_generation_stops_at_the_maximum_of_the_model(trained, tmp_path, kind, expected):
    export_run(trained(*CAUSAL[kind][:2]), "huggingface", tmp_path / "exported")
    settings = json.loads((tmp_path / "exported/generation_config.json").read_text())
    assert {name: settings[name] for name in ("max_length", "max_new_tokens") if name in settings} == expected


def test_an_existing_folder_is_kept(trained, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="expected a new or empty folder"):
        export_run(trained("sentences", TIED), "huggingface", tmp_path)
    with pytest.raises(NotADirectoryError, match="file"):
        export_run(trained("sentences", TIED), "huggingface", tmp_path / "file/new")


@pytest.fixture
def gpt2_tokenizer(tmp_path):
    """A folder with a byte-level BPE in which one token has all roles, as in that of GPT-2."""
    tokenizers = pytest.importorskip("tokenizers")
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(LINES, trainer)
    (tmp_path / "theirs").mkdir()
    library.save(str(tmp_path / "theirs/tokenizer.json"))
    roles = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    (tmp_path / "theirs/tokenizer_config.json").write_text(json.dumps(roles))
    return tmp_path / "theirs"


def test_a_pretrained_tokenizer_gets_the_ids_of_the_run(prepared_data, gpt2_tokenizer):
    options = {"level": "pretrained", "tokenizer": str(gpt2_tokenizer)}
    text = open_prepared(prepared_data("sentences", **options)).tokenizer
    found = make_tokenizer(text, (BOS,), (EOS,))
    assert [found.id_to_token(index) for index in range(3)] == ["<pad>", "<bos>", "<|endoftext|>"]
    for line in LINES:
        assert found.encode(line).ids == [BOS, *text.encode(line), EOS]
        assert found.decode(found.encode(line).ids) == text.decode(text.encode(line))


@pytest.mark.parametrize("case", [*LEVELS, "dyck", "masked", "reversal"])
def test_data_can_be_prepared_with_an_exported_tokenizer(trained, tmp_path, case):
    level = {"level": case, **LEVELS[case]} if case in LEVELS else {}
    name = case if case in ("dyck", "masked", "reversal") else "sentences"
    model = {"kind": "masked", **SIZES, "layers": 1} if name == "masked" else {**SIZES, "layers": 1}
    run = trained(name, model, **level)
    export_run(run, "huggingface", tmp_path / "exported")
    lines = [line for line in lines_of(run) if line]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    settings = TextSettings("pretrained", tokenizer=tmp_path / "exported")
    prepare_language_modeling(tmp_path / "data", tmp_path / "text", tmp_path / "text", settings=settings)
    prepared = open_prepared(tmp_path / "data")
    for index, line in enumerate(lines):
        ids = prepared.split("train")[index].tolist()
        symbols = [prepared.vocabulary.symbols[token] for token in ids]
        theirs = run.prepared.tokenizer.encode(line)
        assert len(symbols) == len(theirs)
        if case != "byte":  # the library has names of its own for bytes
            assert symbols == [run.prepared.vocabulary.symbols[token] for token in theirs]


@pytest.mark.parametrize("name", ["dyck", "masked", "joint"])
def test_words_that_a_vocabulary_without_unknown_symbol_lacks_are_refused_by_name(exported, trained, library, name):
    models = {"dyck": {**SIZES, "layers": 1}, "masked": {"kind": "masked", **SIZES, "layers": 1}, "joint": TRANSLATOR}
    autos = {"dyck": "CausalLM", "masked": "MaskedLM", "joint": "Seq2SeqLM"}
    run = trained(name, models[name])
    model, tokenizer = exported(run, getattr(library, f"AutoModelFor{autos[name]}"))
    inputs = tokenizer(["zebra"], return_tensors="pt")
    inputs |= {"decoder_input_ids": torch.tensor([[BOS]])} if name == "joint" else {}
    if run.prepared.vocabulary.has_unknown:
        assert inputs["input_ids"][0, 0] == run.prepared.vocabulary.id_of["<unk>"]
        assert model(**inputs).logits.isfinite().any()
    else:
        with pytest.raises(ValueError, match=r"id \d+ is not in the vocabulary of 0 to \d+; where .* no <unk>"):
            model(**inputs)


@torch.no_grad()
@pytest.mark.covering(1)
@pytest.mark.parametrize("options", [{}, {"min_count": 2}])
@pytest.mark.parametrize("kind", ["gpt2", "gpt2, stack", "tied", "roberta", "roberta, stack"])
def test_classes_of_transformers_have_an_unknown_symbol_and_say_if_it_was_added(
    trained, library, tmp_path, caplog, kind, options
):
    """There is no code of ours in them to refuse other ids by name."""
    import structattn.interop.huggingface  # noqa: F401  # registers the classes with stacks

    is_masked = kind.startswith("roberta")
    run = trained("masked" if is_masked else "sentences", MASKED[kind][0] if is_masked else CAUSAL[kind][1], **options)
    folder = tmp_path / "exported"
    export_run(run, "huggingface", folder)
    auto = library.AutoModelForMaskedLM if is_masked else library.AutoModelForCausalLM
    tokenizer, model = library.AutoTokenizer.from_pretrained(folder), auto.from_pretrained(folder)
    known = tokenizer(["the cat"], return_tensors="pt")
    equal_logits(model(**known).logits, run.model(known["input_ids"]))
    inputs = tokenizer(["the zebra cat"], return_tensors="pt")
    assert "<unk>" in tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    assert model(**inputs).logits.isfinite().all()
    stated = "ords that the run has not seen become"
    said = [stated in (folder / "README.md").read_text(), stated in caplog.text]
    assert said == [not run.prepared.vocabulary.has_unknown] * 2


def test_a_vocabulary_of_all_bytes_needs_no_unknown_symbol(trained, library, tmp_path, caplog):
    run = trained("sentences", CAUSAL["tied"][1], "byte")
    export_run(run, "huggingface", tmp_path / "gpt2")
    assert library.AutoConfig.from_pretrained(tmp_path / "gpt2").vocab_size == run.prepared.vocabulary.size
    assert "<unk>" not in (tmp_path / "gpt2/README.md").read_text() + caplog.text


def test_an_added_unknown_symbol_is_the_mean_of_words_and_never_generated(trained, library, tmp_path):
    run = trained("sentences", CAUSAL["tied"][1])
    export_run(run, "huggingface", tmp_path / "gpt2")
    model = library.AutoModelForCausalLM.from_pretrained(tmp_path / "gpt2")
    table, size = model.transformer.wte.weight, run.prepared.vocabulary.size
    assert table.shape[0] == size + 1
    torch.testing.assert_close(table[-1], table[3:size].mean(0))
    with torch.no_grad():
        model.lm_head.weight[size] = model.lm_head.weight[2:size].sum(0) * 1e3
    inputs = library.AutoTokenizer.from_pretrained(tmp_path / "gpt2")(["the"], return_tensors="pt")
    generated = model.generate(**inputs, do_sample=True, num_return_sequences=20, max_new_tokens=5)
    assert generated.max() < size


def test_unseen_words_are_the_unknown_symbol_where_there_is_one():
    for level, line, known in (("word", "the zebra", ["the"]), ("character", "tz", ["t"])):
        vocabulary = Vocabulary.from_symbols(known, unknown=True)
        found = make_tokenizer(TextTokenizer(SymbolTokenizer(level, vocabulary), None), (BOS,), ())
        assert found.encode(line).ids == [BOS, vocabulary.id_of[known[0]], vocabulary.id_of["<unk>"]]
