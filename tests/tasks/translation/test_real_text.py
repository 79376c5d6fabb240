"""Europarl, WMT's news tests and the Declaration of Human Rights in 41 languages, where they are at hand."""

import gzip
from collections import Counter
from pathlib import Path

import pytest

from structattn.support.special_tokens import UNK
from structattn.tasks.translation.filters import Filters, PairCounts, SelectionRules, filter_pairs
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.reading import PairFiles
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared
from structattn.text.lines import Normalization
from structattn.text.reading import Notices
from structattn.text.tokenization.byte_pair_encoding import BytePairEncoding
from structattn.text.tokenization.subword_tokenizer import build_subword_tokenizers
from structattn.text.tokenization.subword_training import train_bpe

DATA = Path(__file__).resolve().parents[4] / "shared/data"
PLAIN = Normalization()
EUROPARL, NEWS, RIGHTS = DATA / "europarl-de-en", DATA / "newstest-de-en", DATA / "udhr"


def needs(folder):
    return pytest.mark.skipif(not folder.is_dir(), reason=f"../shared/data/{folder.name} is not there")


@needs(EUROPARL)
def test_the_filters_of_the_published_experiment_keep_what_was_counted_by_hand(tmp_path):
    for side in ("de", "en"):
        lines = gzip.decompress((EUROPARL / f"all20k.{side}.gz").read_bytes()).split(b"\n")[:18_000]
        (tmp_path / side).write_bytes(b"\n".join(lines) + b"\n")
    rules, counts = SelectionRules(Filters(150, 4.0), PLAIN, True, 100_000, False), PairCounts()
    for pair in filter_pairs(PairFiles(tmp_path / "de", tmp_path / "en"), rules, counts, Notices()):
        assert pair.raw.source.line == pair.raw.target.line == pair.number
    assert (counts.lines, counts.kept) == (18_000, 8_971)


@needs(NEWS)
@pytest.mark.parametrize("year", [2016, 2017])
def test_news_tests_cut_to_150_characters(year):
    rules = SelectionRules(Filters(150, 4.0, full_stops=True), PLAIN, False, 100_000, False)
    files = PairFiles(NEWS / f"newstest{year}.de", NEWS / f"newstest{year}.en")
    cut = [(NEWS / f"newstest{year}.le150.{side}").read_text("utf-8").split("\n")[:-1] for side in ("de", "en")]
    kept = [(pair.source, pair.target) for pair in filter_pairs(files, rules, PairCounts(), Notices())]
    assert kept == [(PLAIN(left), PLAIN(right)) for left, right in zip(*cut, strict=True)]


@needs(EUROPARL)
def test_europarl_round_trip(tmp_path):
    pytest.importorskip("tokenizers", reason="the extra mt is not installed")
    splits = {name: [EUROPARL / f"{name}.{side}" for side in ("de", "en")] for name in ("train", "valid")}
    tokenizer, filters = TokenizerSettings("bpe", size=4000), Filters(150, 4.0, full_stops=True)
    prepare_parallel(tmp_path / "folder", splits, tokenizer=tokenizer, filters=filters)
    prepared = open_prepared(tmp_path / "folder")
    assert len(prepared.pairs("train")) == 8_936 - prepared.header.extra["dropped"]["train"].get("full_stop", 0)
    for name, side in (("source", prepared.sides.source), ("target", prepared.sides.target)):
        sequences = getattr(prepared.pairs("valid"), name)
        known = [index for index in range(len(sequences)) if UNK not in sequences[index]]
        assert len(known) > 0.98 * len(sequences)
        texts = prepared.texts("valid", name)
        assert [side.decode(sequences[index]) for index in known] == [texts[index] for index in known]


@needs(RIGHTS)
def test_human_rights_in_41_languages_round_trip():
    pytest.importorskip("tokenizers", reason="the extra mt is not installed")
    texts = sorted(RIGHTS.glob("*.txt"))
    lines = [PLAIN(line) for path in texts for line in path.read_text("utf-8").split("\n")[:25]]
    units = Counter(unit for line in lines for unit in BytePairEncoding(()).pretokenize(line))
    (tokenizer,) = build_subword_tokenizers(train_bpe(units, 3000), [units], 3)
    encoded = [tokenizer.encode(line) for line in lines]
    assert len(texts) >= 40
    assert not any(UNK in ids for ids in encoded)
    assert [tokenizer.decode(ids) for ids in encoded] == lines
    assert sum(map(len, encoded)) < 0.7 * sum(map(len, lines))
