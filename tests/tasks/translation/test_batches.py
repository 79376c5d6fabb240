"""Translation's examples: pure functions of their numbers, whatever was asked for before."""

import numpy as np
import pytest

from structattn.settings.run import RunSettings
from structattn.settings.training import PairBatches
from structattn.support.errors import DataError, UsageError
from structattn.support.special_tokens import EOS, FIRST_SYMBOL
from structattn.tasks.translation.batches import scoring_pairs, training_pairs
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.task import translation_task
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared

BOTH = PairBatches(kind="pairs", max_tokens=200)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Thirty pairs, by byte pairs and by words."""
    pytest.importorskip("tokenizers", reason="the extra mt is not installed")
    place = tmp_path_factory.mktemp("pairs")
    often = [" schläft" * (n % 4) for n in range(30)]
    rows = ((f"der {n}. große bär{more}", f"the {n}th great bear{more}") for n, more in enumerate(often))
    table = place / "pairs.tsv"
    table.write_text("".join("\t".join(row) + "\n" for row in rows))
    for name, coding in (("bpe", TokenizerSettings(size=60)), ("word", TokenizerSettings("word"))):
        prepare_parallel(place / name, {"train": [table], "valid": [table]}, tokenizer=coding)
    return open_prepared(place / "bpe"), open_prepared(place / "word")


def rows(batch):
    """(pair, source, target) of each row."""
    return [
        (example, tuple(source[:n].tolist()), tuple(target[:m].tolist()))
        for example, source, n, target, m in zip(
            batch.examples, batch.source, batch.source_lengths, batch.targets, batch.lengths, strict=True
        )
    ]


def test_each_epoch_has_each_pair_once_under_its_own_numbers(folders):
    examples = training_pairs(folders[0], BOTH, seed=3)
    for epoch in (0, 2):
        numbers = np.concatenate(examples.training_order(epoch))
        assert sorted(numbers.tolist()) == list(range(epoch * 30, epoch * 30 + 30))
    orders = [[batch.tolist() for batch in examples.training_order(epoch)] for epoch in (0, 1)]
    assert orders[0] != [[number - 30 for number in batch] for batch in orders[1]]


def test_rows_are_the_pairs_and_end(folders):
    batches, pairs = PairBatches(kind="pairs", max_tokens=200, max_tokens_of="sum"), folders[0].pairs("train")
    examples = training_pairs(folders[0], batches, seed=3)
    for numbers in examples.training_order(5):
        for index, source, target in rows(examples.batch(numbers)):
            assert source == (*pairs.source[index].tolist(), EOS)
            assert target == (*pairs.target[index].tolist(), EOS)


def test_dropout_is_a_function_of_the_numbers_alone(folders):
    batches = PairBatches(kind="pairs", max_tokens=200, source_bpe_dropout=0.3, target_bpe_dropout=0.3)
    examples, sides = training_pairs(folders[0], batches, 3), folders[0].sides
    plan = examples.training_order(4)
    before = [rows(examples.batch(numbers)) for numbers in plan]
    fresh = training_pairs(folders[0], batches, 3)
    assert [rows(fresh.batch(numbers)) for numbers in reversed(plan)] == before[::-1]  # as after a resume
    texts = folders[0].texts("valid", "source")
    seen = {index: source for batch in before for index, source, _ in batch}
    assert all(sides.source.decode(ids) == texts[index] for index, ids in seen.items())
    assert all(min(ids[:-1]) >= FIRST_SYMBOL for ids in seen.values())
    later = {i: source for numbers in examples.training_order(5) for i, source, _ in rows(examples.batch(numbers))}
    assert sum(later[index] != seen[index] for index in seen) > 15


def test_dropout_leaves_a_line_whole_that_it_would_cut_too_small(folders):
    pairs, batches = folders[0].pairs("train"), PairBatches(kind="pairs", max_tokens=200, source_bpe_dropout=0.2)
    longest = int(pairs.source.lengths.max())
    free, bounded = training_pairs(folders[0], batches, 3), training_pairs(folders[0], batches, 3, longest)
    whole = set()
    for numbers in free.training_order(0):
        for (index, anyhow, _), (_, source, _) in zip(
            rows(free.batch(numbers)), rows(bounded.batch(numbers)), strict=True
        ):
            whole.add(len(anyhow) > longest + 1)
            assert source == ((*pairs.source[index].tolist(), EOS) if len(anyhow) > longest + 1 else anyhow)
    assert whole == {True, False}


def test_the_task_bounds_dropout_by_learned_positions(folders):
    tree = {"task": "translation", "data": folders[0].path}
    longest = int(folders[0].pairs("train").source.lengths.max())
    tree["training"] = {"batches": {"kind": "pairs", "source_bpe_dropout": 0.3}}
    for positions, bounded in (({"kind": "learned", "max_positions": longest + 1}, True), ("sinusoidal", False)):
        settings = RunSettings.model_validate(tree | {"model": {"kind": "encoder_decoder", "positions": positions}})
        task = translation_task(folders[0], settings)
        found = max(int(task.batch(numbers).source_lengths.max()) for numbers in task.training_batches(0))
        assert (found <= longest + 1) == bounded


def test_scoring_takes_every_pair_as_it_stands(folders):
    for prepared in folders:
        examples = scoring_pairs(prepared, "valid", 100, "target")
        found = [row for numbers in examples.scoring_order() for row in rows(examples.batch(numbers))]
        assert sorted(index for index, *_ in found) == list(range(30))
        lengths = [len(target) for *_, target in found]
        assert lengths == sorted(lengths)


def test_what_cannot_be_is_refused(folders, tmp_path):
    with pytest.raises(UsageError, match="needs level bpe"):
        training_pairs(folders[1], PairBatches(kind="pairs", source_bpe_dropout=0.1), 1)
    with pytest.raises(DataError, match="has no split 'test'"):
        scoring_pairs(folders[0], "test", 100, "both")
    examples = training_pairs(folders[0], BOTH, 1)
    with pytest.raises(ValueError, match="examples 29 to 30 belong to several epochs"):
        examples.batch(np.array([29, 30]))
    assert examples.batch(np.array([], dtype=np.int64)).examples == ()
