"""Drawn sets: what is withheld, no repetitions, the distribution of the published files, and reproducibility."""

from collections import Counter
from itertools import islice
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from structattn.support.errors import DataError, UsageError
from structattn.support.seeds import numpy_generator
from structattn.tasks.transformations.prepare import TransformationSizes, prepare_transformation
from structattn.tasks.transformations.rules import RELATIVE_CLAUSES, TRANSFORMATIONS
from structattn.tasks.transformations.sampling import ambiguous_pairs, disambiguating_pairs
from structattn.text.folders.prepared import open_prepared, verify_sources

PUBLISHED = Path(__file__).resolve().parents[4] / "shared/data/mccoy"
SIZES = TransformationSizes(train=300, valid=30, test=40, gen=50)


def lines_of(folder, split):
    prepared = open_prepared(folder)
    sequences = prepared.split(split)
    return [tuple(prepared.vocabulary.symbols[token] for token in sequences[i]) for i in range(len(sequences))]


@pytest.mark.parametrize("task", TRANSFORMATIONS)
def test_splits_hold_out_what_tells_the_rules_apart(tmp_path, task):
    rules = TRANSFORMATIONS[task]
    prepare_transformation(tmp_path / "data", task, sizes=SIZES)
    pairs = {split: [rules.split(line) for line in lines_of(tmp_path / "data", split)]
             for split in ("train", "valid", "test", "gen")}  # fmt: skip
    assert {split: len(found) for split, found in pairs.items()} == {"train": 300, "valid": 30, "test": 40, "gen": 50}
    for split, found in pairs.items():
        for pair in found:
            assert pair.target == rules.target(pair.source)
            assert (rules.wrong_target(pair.source) != pair.target) == (split == "gen")
            if task == "question" and split == "gen":
                assert rules.modifier(pair.source) in RELATIVE_CLAUSES
            elif task == "question" and pair.source[-1] == "quest":
                assert rules.modifier(pair.source) not in RELATIVE_CLAUSES
    sources = [pair.source if task == "question" else pair.source[:-1] for found in pairs.values() for pair in found]
    assert len(set(sources)) == len(sources)


def test_the_vocabulary_has_every_word_of_the_task(tmp_path):
    for task, size in {"question": 68, "tense": 98}.items():
        prepare_transformation(tmp_path / task, task, sizes=TransformationSizes(1, 1, 1, 1))
        assert open_prepared(tmp_path / task).vocabulary.size == size + 3


def test_folders_are_a_function_of_the_seed(tmp_path):
    digests = []
    for number, seed in enumerate((1, 1, 2)):
        prepare_transformation(tmp_path / str(number), "question", seed=seed, sizes=SIZES)
        digests.append(open_prepared(tmp_path / str(number)).digest)
    assert digests[0] == digests[1] != digests[2]


def test_published_files_are_taken_and_never_drawn(tmp_path):
    prepare_transformation(tmp_path / "one", "tense", sizes=SIZES)
    for split, end in {"valid": "dev", "test": "test", "gen": "gen"}.items():
        pairs = [TRANSFORMATIONS["tense"].split(line) for line in lines_of(tmp_path / "one", split)]
        text = "".join(f"{' '.join(pair.source)}\t{' '.join(pair.target)}\n" for pair in pairs)
        (tmp_path / f"tense.{end}").write_text(text)
    prepare_transformation(tmp_path / "two", "tense", published=tmp_path, sizes=SIZES, seed=5)
    for split in ("valid", "test", "gen"):
        assert lines_of(tmp_path / "two", split) == lines_of(tmp_path / "one", split)
    (tmp_path / "tense.dev").write_text("my yak slept . PAST\tmy yak sleeps .\n")
    with pytest.raises(DataError, match=r"tense\.dev:1: expected source TAB target, the target 'my yak slept \.'"):
        prepare_transformation(tmp_path / "three", "tense", published=tmp_path, sizes=SIZES)


def test_pairs_for_an_encoder_decoder_are_the_same_pairs(tmp_path):
    prepare_transformation(tmp_path / "lines", "question", sizes=SIZES)
    prepare_transformation(tmp_path / "pairs", "question", sizes=SIZES, layout="parallel")
    prepared = open_prepared(tmp_path / "pairs")
    for split in ("valid", "test", "gen"):
        both = zip(prepared.texts(split, "source"), prepared.texts(split, "target"), strict=True)
        joined = [tuple(f"{source} {target}".split()) for source, target in both]
        assert joined == lines_of(tmp_path / "lines", split)
    assert prepared.header.extra["transformation"] == "question"


def test_the_text_beside_the_folder_overwrites_nothing(tmp_path):
    text = tmp_path / "data.text"
    text.mkdir()
    (text / "train.tsv").write_text("mine")
    with pytest.raises(DataError, match=r"data\.text: exists and is not empty"):
        prepare_transformation(tmp_path / "data", "question", sizes=SIZES, layout="parallel")
    for split in ("valid", "test", "gen"):
        (text / f"{split}.tsv").write_text("mine")
    with pytest.raises(DataError, match=r"train\.tsv: exists and holds other pairs"):
        prepare_transformation(tmp_path / "data", "question", sizes=SIZES, layout="parallel")
    assert {path.read_text() for path in text.iterdir()} == {"mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["data.text"]


def test_the_text_of_data_that_were_moved_stays(tmp_path):
    prepare_transformation(tmp_path / "data", "question", sizes=SIZES, layout="parallel")
    (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(DataError, match="holds other pairs"):
        prepare_transformation(tmp_path / "data", "question", sizes=SIZES, layout="parallel", seed=2)
    assert verify_sources(open_prepared(tmp_path / "moved")) == ()


def test_an_interrupted_preparation_can_be_repeated(tmp_path, monkeypatch):
    module = "structattn.tasks.transformations.prepare"
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.prepare_parallel", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare_transformation(tmp_path / "data", "question", sizes=SIZES, layout="parallel")
    assert (tmp_path / "data.text/train.tsv").exists()
    prepare_transformation(tmp_path / "data", "question", sizes=SIZES, layout="parallel")
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.write_unflushed", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare_transformation(tmp_path / "other", "question", sizes=SIZES, layout="parallel")
    prepare_transformation(tmp_path / "other", "question", sizes=SIZES, layout="parallel")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "data.text", "other", "other.text"]


def test_pairs_are_written_into_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    prepare_transformation(Path(), "question", sizes=SIZES, layout="parallel")
    assert verify_sources(open_prepared(Path())) == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "here.text"]


def test_unknown_tasks_and_sizes_are_refused(tmp_path):
    with pytest.raises(UsageError, match="expected one of"):
        prepare_transformation(tmp_path / "data", "passive")
    with pytest.raises(UsageError, match="gen is 0"):
        TransformationSizes(gen=0)


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="../shared/data/mccoy is not there")
def test_drawn_questions_are_distributed_as_the_published_ones():
    """Shares of task word and modifier, and mean lengths: within 3 standard errors of the difference."""
    rules, seen = TRANSFORMATIONS["question"], set()
    stream = ambiguous_pairs(rules, numpy_generator(1, "test"), seen)
    test = list(islice(stream, 101_000, 111_000))  # after the training and validation sets
    gen = list(islice(disambiguating_pairs(rules, numpy_generator(2, "test"), seen), 8303))
    for drawn, name, first in ((test, "test", None), (gen, "gen", 8303)):
        lines = (PUBLISHED / f"question.{name}").read_text().splitlines()[:first]  # later ones are ORC only
        published = [tuple(line.split("\t")[0].split()) for line in lines]
        ours = [pair.source for pair in drawn]
        shares = [Counter((source[-1], rules.modifier(source)) for source in of) for of in (ours, published)]
        for key in shares[0] | shares[1]:
            p, q = (share[key] / len(ours) for share in shares)
            assert abs(p - q) < 3 * np.sqrt((p * (1 - p) + q * (1 - q)) / len(ours)), (name, key, p, q)
        lengths = [np.array([len(source) for source in of]) for of in (ours, published)]
        error = np.sqrt(sum(of.var() / len(of) for of in lengths))
        assert abs(lengths[0].mean() - lengths[1].mean()) < 3 * error
