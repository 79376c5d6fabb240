"""Languages from files as prepared folders, and runs on them; files and folders that are damaged or forged."""

import hashlib
import json
import math
import shutil
import time
from pathlib import Path

import pytest
from tests.program import succeed

import structattn
from structattn.settings.prepare import FormalLanguageData
from structattn.support.errors import DataError, UsageError
from structattn.support.files import sha256_of_file
from structattn.sweeps.data_preparation import prepare_data
from structattn.tasks.formal_languages import predict
from structattn.tasks.formal_languages.language_files.language_file import prepared_language, read_language_file
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.text.folders.prepared import open_prepared, verify_sources

DYCK = "c45185d7f85b9fada35782acb3775675d40dac9c071cf141ffdf72d0b6725c04"  # the tokens of all splits
COUNTING = "# a^n b^n\r\nS -> open S close [9/10] | open close\r\n"
SIZES = FormalLanguageSizes(train=40, valid=10, test_per_length=2, train_lengths=(2, 8), test_lengths=(2, 12))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "counting.cfg"
    path.write_bytes(b"\xef\xbb\xbf" + COUNTING.encode())
    return path


def test_a_folder_holds_the_text_and_its_digest(file, tmp_path, caplog):
    prepare_formal_language(tmp_path / "data", str(file), sizes=SIZES)
    header = open_prepared(tmp_path / "data").header
    assert (header.extra["language"], header.extra["variant"]) == ("counting.cfg", "faithful")
    assert header.extra["definition"] == COUNTING.replace("\r", "")
    assert header.sources[0].sha256 == sha256_of_file(file)
    assert header.sources[0].path == "../counting.cfg"
    assert header.extra["number_of_lengths"] == {"train": 4, "valid": 4, "test": 6}
    assert "byte-order mark" in caplog.text


def tokens_of(folder, path, **options):
    prepare_formal_language(folder, str(path), sizes=SIZES, **options)
    return {split: (folder / split / "tokens.bin").read_bytes() for split in ("train", "valid", "test")}


def test_strings_depend_on_the_grammar_and_not_on_the_name_of_its_file(file, tmp_path):
    expected = tokens_of(tmp_path / "data", file)
    renamed = tmp_path / "renamed.cfg"
    renamed.write_text("S -> open S close [0.9]  # spelled otherwise\nS -> open close [0.1]\n")
    assert tokens_of(tmp_path / "renamed", renamed) == expected
    renamed.write_text("S -> open S close [0.8] | open close\n")
    assert tokens_of(tmp_path / "other", renamed) != expected
    assert tokens_of(tmp_path / "seed", file, seed=2)["train"] != expected["train"]


def test_strings_of_built_in_languages_are_those_of_earlier_versions(tmp_path):
    found = tokens_of(tmp_path / "data", "dyck")
    assert hashlib.sha256(found["train"] + found["valid"] + found["test"]).hexdigest() == DYCK


def test_symbols_of_several_characters_are_words(file, tmp_path):
    prepare_formal_language(tmp_path / "data", str(file), sizes=SIZES)
    prepared = open_prepared(tmp_path / "data")
    assert prepared.tokenizer.encode("open open close close") == [3, 3, 4, 4]
    (tmp_path / "dyck.cfg").write_text("S -> S T [0.3] | T\nT -> '(' S ')' [0.4] | '(' ')'")
    prepare_formal_language(tmp_path / "dyck", str(tmp_path / "dyck.cfg"), sizes=SIZES)
    assert open_prepared(tmp_path / "dyck").tokenizer.encode("(())") == [3, 3, 4, 4]


def test_the_language_of_a_folder_does_not_need_the_file(file, tmp_path):
    prepare_formal_language(tmp_path / "data", str(file), sizes=SIZES)
    language = read_language_file(file).language
    file.unlink()
    again = prepared_language(open_prepared(tmp_path / "data"))
    assert again.grammar == language.grammar
    assert verify_sources(open_prepared(tmp_path / "data")) == (str(file),)


def test_a_changed_file_is_noticed(file, tmp_path):
    prepare_formal_language(tmp_path / "data", str(file), sizes=SIZES)
    file.write_text(COUNTING + "# more")
    with pytest.raises(DataError, match=r"counting\.cfg: changed since"):
        verify_sources(open_prepared(tmp_path / "data"))


def test_train_evaluate_and_generate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.cfg").write_text("S -> a S b [0.9] | a b\n")
    sizes = ["--train", 40, "--valid", 8, "--test-per-length", 2, "--train-lengths", 2, 8, "--test-lengths", 2, 12]
    made = succeed("prepare", "formal-language", "mine.cfg", "-o", "data", *sizes)
    assert "  lengths        train: 2, 4, ..., 8 (4); test: 2, 4, ..., 12 (6)\n" in made.output
    Path("mine.cfg").unlink()
    model = {"d_model": 8, "d_ff": 8, "num_heads": 2, "layers": "1.superposition-4"}
    training = {"max_updates": 3, "batches": {"batch_size": 10}}
    settings = {"task": "formal_language", "data": "data", "model": model, "training": training}
    Path("run.yaml").write_text(json.dumps(settings))
    succeed("train", "run.yaml", "-o", "run")
    loaded = structattn.load("run")
    bound = 12 * math.log(6) / (2 * sum(length + 1 for length in range(2, 13, 2)))  # one string of each of six lengths
    scores = structattn.evaluate("run", "test")
    assert scores.lower_bound == pytest.approx(bound, rel=1e-12)
    assert scores.cross_entropy > bound
    texts = loaded.generate(["", "aabb", "ab"], n=30, seed=1, max_length=20)
    known = {each.text: each.in_language for of_prompt in texts for each in of_prompt if each.finished}
    assert known == {text: is_counting(text) for text in known}
    assert set(known.values()) == {True, False}
    monkeypatch.setattr(predict, "MAX_PARSING_COST", 100)
    (texts,) = loaded.generate(["ab"], n=30, seed=1, max_length=20)
    undecided = {len(each.text) for each in texts if each.finished and each.in_language is None}
    decided = {len(each.text) for each in texts if each.in_language is not None}
    assert max(decided) < min(undecided)


def is_counting(text):
    half = len(text) // 2
    return half > 0 and text == "a" * half + "b" * half


def test_a_sweep_prepares_a_file_and_knows_it(file, tmp_path):
    data = FormalLanguageData(language=str(file), train=20, valid=5, test_per_length=1, train_lengths=(2, 8),
                              test_lengths=(2, 8), seed=3)  # fmt: skip
    prepare_data(tmp_path / "data", data)
    assert open_prepared(tmp_path / "data").header.extra["seed"] == 3
    assert data.files == (str(file),)
    assert FormalLanguageData(language="dyck").files == ()


def test_files_have_one_variant(file, tmp_path):
    with pytest.raises(UsageError, match=r"counting\.cfg: variant is 'reference'; expected 'faithful'"):
        prepare_formal_language(tmp_path / "data", str(file), "reference", sizes=SIZES)


def test_lengths_without_strings_are_refused_with_others(file, tmp_path):
    with pytest.raises(
        UsageError, match=r"no strings of the lengths 41 to 41; shorter ones that it has: 32, 34, 36, 38, 40"
    ):
        prepare_formal_language(tmp_path / "data", str(file), sizes=FormalLanguageSizes(train_lengths=(41, 41)))
    file.write_text("S -> a b | c")
    with pytest.raises(UsageError, match=r"no strings of the lengths 40 to 80; shorter ones that it has: 1, 2$"):
        prepare_formal_language(tmp_path / "data", str(file))


def test_probabilities_out_of_range_are_refused(tmp_path):
    """An a has weight 1e-99, and b 1: in one string of many a's and b's no scale keeps both in range."""
    path = tmp_path / "far.cfg"
    path.write_text(
        "S -> T U\nT -> b T [0.5] | b\nU -> V U [0.5] | V\nV -> a W\nW -> b [1/1" + "0" * 95 + "] | c W W W [1/4] | d"
    )
    with pytest.raises(UsageError, match=r"far\.cfg: .* outside the range of float64; expected shorter strings"):
        prepare_formal_language(tmp_path / "data", str(path))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("x.cfg", b"S -> \xff", r"x\.cfg:1:6: byte 0xFF is not UTF-8"),
        ("x.cfg", b"S -> a\nT -> \0", r"x\.cfg:2:6: a NUL byte"),
        ("x.cfg", b"S -> a\n" + b"#" * (1 << 19), r"x\.cfg: cannot be read: has 524295 bytes; expected at most 524288"),
        ("x.cfg", None, r"x\.cfg: cannot be read: No such file"),
    ],
)
def test_files_that_cannot_be_read(name, content, complaint, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        prepare_formal_language(tmp_path / "data", str(tmp_path / name))


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "x.cfg").mkdir()
    with pytest.raises(DataError, match=r"x\.cfg: cannot be read"):
        read_language_file(tmp_path / "x.cfg")


@pytest.fixture
def forged(file, tmp_path):
    """forged(**extra) is a prepared folder whose header has other entries."""
    prepare_formal_language(tmp_path / "data", str(file), sizes=SIZES)

    def forge(**extra):
        header = json.loads((tmp_path / "data/header.json").read_text())
        header["extra"] = {key: value for key, value in (header["extra"] | extra).items() if value is not None}
        shutil.copytree(tmp_path / "data", tmp_path / "forged")
        (tmp_path / "forged/header.json").write_text(json.dumps(header))
        return open_prepared(tmp_path / "forged")

    return forge


CHAINS = "\n".join(f"S{i} -> S{i + 1} S{i + 1} [1/3] | 'x{i}'" for i in range(900)) + "\nS900 -> ε | a"


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        (
            {"definition": 3},
            r"forged/header\.json: language, variant and definition are 'counting\.cfg', 'faithful', 3",
        ),
        ({"language": None}, r"header\.json: language, variant and definition are None"),
        ({"language": "x.exe"}, r"header\.json \(x\.exe\): is named 'x\.exe'; expected a name that ends in \.cfg, "),
        ({"definition": "S -> a\nT"}, r"header\.json \(counting\.cfg\):2:2: found the end of the line after 'T'"),
        ({"definition": "a " * (1 << 18) + "b"}, r"has 524289 characters; expected at most 524288"),
        ({"definition": "x " * (1 << 15)}, r"header\.json \(counting\.cfg\):1:3: found 'x' after 'x'"),
        ({"definition": CHAINS}, r"header\.json \(counting\.cfg\): "),
        ({"definition": "S -> a " + "N " * 90 + "\nN -> ε | b"}, "more than 40000 symbols"),
        ({"definition": None}, "formal language 'counting.cfg' is unknown"),
    ],
)
def test_a_forged_definition_is_refused_in_seconds(forged, extra, complaint):
    prepared, start = forged(**extra), time.monotonic()
    with pytest.raises((DataError, UsageError), match=complaint):
        prepared_language(prepared)
    assert time.monotonic() - start < 20
