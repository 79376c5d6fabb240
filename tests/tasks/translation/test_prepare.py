"""Preparation of parallel text: kept pairs, notices, filters and held-out splits."""

import io
import json
import re
import tracemalloc
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from structattn.support.errors import DataError, UsageError
from structattn.support.special_tokens import UNK
from structattn.tasks.translation.filters import Filters, PairCounts, sample_pairs
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared, verify_sources
from structattn.text.lines import Normalization
from structattn.text.tokenization.subword_training import SymbolCounts

SETTINGS = [
    *(TokenizerSettings("bpe", joint, 40, threshold) for joint in (True, False) for threshold in (0, 3)),
    *(
        TokenizerSettings("bpe", joint, 40, 2, marker)
        for joint in (True, False)
        for marker in ("start", "continuation")
    ),
    *(
        TokenizerSettings(f"sentencepiece-{kind}", joint, 45, 2)
        for joint in (True, False)
        for kind in ("bpe", "unigram")
    ),
    *(TokenizerSettings(level, joint) for joint in (True, False) for level in ("word", "character", "byte")),
]


def test_two_files(parallel, tmp_path):
    prepared, notices = parallel.prepare(tmp_path)
    assert notices == ()
    assert prepared.kind == "parallel"
    assert parallel.lines(prepared) == [(n, f"s{n} rot", f"t{n} red") for n in range(1, 7)]
    assert prepared.texts("valid", "source") == tuple(f"s{n} rot" for n in range(1, 7))
    assert prepared.sides.source.vocabulary.symbols[3:5] == ("<unk>", "rot")
    assert prepared.vocabulary is prepared.sides.target.vocabulary
    assert prepared.split("train")[0].tolist() == prepared.pairs("train").target[0].tolist()
    assert verify_sources(prepared) == ()


def test_a_tsv_gives_the_same_as_two_files(parallel, tmp_path):
    first, _ = parallel.prepare(tmp_path)
    table = parallel.write(tmp_path / "table.tsv", parallel.GOOD)
    prepare_parallel(tmp_path / "other", {"train": [table], "valid": [table]}, tokenizer=parallel.WORDS)
    second = open_prepared(tmp_path / "other")
    assert parallel.lines(first) == parallel.lines(second)
    assert first.header.tokenizer == second.header.tokenizer


def test_standard_input_is_a_tsv(parallel, tmp_path, monkeypatch):
    valid = parallel.write(tmp_path / "table.tsv", parallel.GOOD)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(parallel.GOOD.encode())))
    prepare_parallel(tmp_path / "folder", {"train": ["-"], "valid": [valid]}, tokenizer=parallel.WORDS)
    prepared = open_prepared(tmp_path / "folder")
    assert len(prepared.pairs("train")) == 6
    assert [source.path for source in prepared.header.sources] == ["-", "../table.tsv"]
    assert verify_sources(prepared) == ()
    assert {path.name for path in tmp_path.iterdir()} == {"table.tsv", "folder"}


def test_errors_in_standard_input_name_it(parallel, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a\tb\nc\xff\td\n")))
    with pytest.raises(DataError, match=r"^standard input:2:2: byte 0xFF") as caught:
        prepare_parallel(tmp_path / "folder", {"train": ["-"]}, tokenizer=parallel.WORDS)
    assert (caught.value.line, caught.value.column) == (2, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tokenizer", SETTINGS, ids=str)
def test_every_tokenizer_round_trips_through_a_folder(parallel, tmp_path, tokenizer):
    table = "".join(f"der {n % 7}. größte жук 漢字\tthe {n % 5}th large\u2028bug <pad_>\n" for n in range(40))
    prepared, _ = parallel.prepare(tmp_path, table, tokenizer, table)
    expected = [tuple(line.split("\t")) for line in table.split("\n")[:-1]]
    for split in ("train", "valid"):
        assert parallel.lines(prepared, split) == [(n, *pair) for n, pair in enumerate(expected, start=1)]
    sides, pairs = prepared.sides, prepared.pairs("train")
    assert sides.joint is tokenizer.joint or tokenizer.level == "byte"
    assert sides.source.encode(expected[3][0]) == pairs.source[3].tolist()
    assert prepared.header.vocabulary_size == sides.target.vocabulary.size
    expected_unknown = {"source": 0, "target": 0}
    assert prepared.header.extra["unknown_tokens"] == {"train": expected_unknown, "valid": expected_unknown}


@pytest.mark.parametrize("tokenizer", SETTINGS, ids=str)
def test_preparing_twice_gives_the_same_folder(parallel, tmp_path, tokenizer):
    table = "".join(f"{n} rot und {n % 4} blau\t{n} red and {n % 4} blue\n" for n in range(20))
    first, _ = parallel.prepare(tmp_path, table, tokenizer)
    second, _ = parallel.prepare(tmp_path, table, tokenizer, output="again")
    assert first.digest == second.digest


def test_nfkc_comes_first_and_can_be_left_out(parallel, tmp_path):
    table = "ﬁne\u00a0ＡＢ\t  x\t\n"[:-2] + "\n"
    prepared, _ = parallel.prepare(tmp_path, table)
    assert parallel.lines(prepared) == [(1, "fine AB", "x")]
    prepared, _ = parallel.prepare(tmp_path, table, output="raw", normalization=Normalization(False))
    assert parallel.lines(prepared) == [(1, "ﬁne\u00a0ＡＢ", "x")]


def test_pairs_with_an_empty_side_are_dropped_counted_and_reported(parallel, tmp_path):
    table = "s1\tt1\n\tt2\ns3\t \n\u00a0\u3000\tt4\n \t \ns6\tt6\n"
    prepared, notices = parallel.prepare(tmp_path, table)
    assert parallel.lines(prepared) == [(1, "s1", "t1"), (6, "s6", "t6")]
    assert prepared.header.extra["dropped"] == {"train": {"blank": 4}, "valid": {}}
    assert prepared.header.extra["lines"]["train"] == 6
    assert notices[0] == f"{tmp_path / 'train.de'}: 4 of 6 pairs of train are dropped: 4 with an empty side"


def test_the_filters_of_the_published_experiment(parallel, tmp_path):
    rows = [
        "ab\tabcdefgh",
        "ab\tabcdefghi",
        ".\tx",
        "x\t.",
        "a\t" + "a " * 76,
        ". .\ty y",
        "é" * 150 + "\t" + "e" * 150,
    ]
    table, filters = "\n".join(rows) + "\n", Filters(150, 4.0, full_stops=True)
    prepared, _ = parallel.prepare(tmp_path, table, held_out=table, filters=filters)
    assert [line for line, *_ in parallel.lines(prepared)] == [1, 6, 7]
    assert [line for line, *_ in parallel.lines(prepared, "valid")] == [1, 2, 6, 7]  # no limit on ratios here
    dropped = prepared.header.extra["dropped"]
    assert dropped["train"] == {"full_stop": 2, "long": 1, "ratio": 1}
    assert prepared.header.extra["filters"]["max_characters"] == 150


def test_characters_are_counted_after_normalization(parallel, tmp_path):
    table = "e\u0301" * 3 + "\tx x\n" + "ﬃ\txxx\n"
    prepared, _ = parallel.prepare(tmp_path, table, held_out=table, filters=Filters(3))
    assert [line for line, *_ in parallel.lines(prepared)] == [1, 2]


def test_a_sample_is_drawn_from_the_kept_pairs_and_is_reproducible(parallel, tmp_path):
    table = "".join(f"{'' if n % 3 == 0 else 's'}{n if n % 3 else ''}\tt{n}\n" for n in range(1, 301))
    drawn = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        filters = Filters(sample=50, sample_seed=seed)
        prepared, _ = parallel.prepare(tmp_path, table, filters=filters, output=name)
        drawn[name] = parallel.lines(prepared)
        assert len(drawn[name]) == 50
        assert all((source, target) == (f"s{line}", f"t{line}") for line, source, target in drawn[name])
        assert prepared.header.extra["dropped"]["train"] == {"blank": 100, "sample": 150}
        assert len(prepared.pairs("valid")) == 6
    assert drawn["a"] == drawn["b"] != drawn["c"]
    everything, _ = parallel.prepare(tmp_path, table, filters=Filters(sample=1000), output="d")
    assert len(everything.pairs("train")) == 200


def test_each_pair_is_sampled_equally_often():
    counts = Counter()
    for seed in range(1000):
        pairs = (SimpleNamespace(number=number, source="a", target="b") for number in range(1, 9))
        sample = sample_pairs(pairs, 8, Filters(sample=4, sample_seed=seed), PairCounts())
        drawn = [pair.number for pair in sample]
        assert drawn == sorted(drawn)
        assert len(drawn) == 4
        counts.update(drawn)
    assert all(430 <= counts[line] <= 570 for line in range(1, 9))  # 500 expected, standard deviation 16


def test_out_of_vocabulary_words_are_unknown_and_reported(parallel, tmp_path):
    prepared, notices = parallel.prepare(tmp_path, held_out="s1 blau\tt1 red\n")
    assert prepared.pairs("valid").source[0].tolist()[1] == UNK
    assert prepared.header.extra["unknown_tokens"]["valid"] == {"source": 1, "target": 0}
    shares = "1 of 2 source tokens and 0 of 2 target tokens of valid"
    consequence = "so scores say little about the text"
    assert notices == (f"{tmp_path / 'valid.de'}: {shares} are <unk>, {consequence}",)
    assert prepared.texts("valid", "source") == ("s1 blau",)  # references are whole all the same


def test_too_long_a_line_is_rejected_unless_a_filter_drops_it(parallel, tmp_path):
    table = "s1\tt1\ns2\t" + "ä " * 8 + "\n"
    for tokenizer, limit, unit in ((parallel.WORDS, 7, "8 words"), (TokenizerSettings("bpe"), 14, "15 characters")):
        with pytest.raises(DataError, match=f"the line has {unit}") as caught:
            parallel.prepare(tmp_path, table, tokenizer, max_line_tokens=limit)
        assert (caught.value.path, caught.value.line) == (tmp_path / "train.en", 2)
    prepared, _ = parallel.prepare(tmp_path, table, max_line_tokens=7, filters=Filters(10))
    assert prepared.header.extra["dropped"]["train"] == {"long": 1}


def test_a_line_of_a_million_characters(parallel, tmp_path):
    table = "s1\tt1\n" + "ab" * 500_000 + "\tt2\n"
    with pytest.raises(DataError, match="1000000 characters, but max_line_tokens is 100000"):
        parallel.prepare(tmp_path, table, TokenizerSettings("bpe", size=20))


@pytest.mark.parametrize("word", ["<pad>", "<bos>", "<eos>"])
def test_names_of_control_symbols_are_rejected_at_word_level_only(parallel, tmp_path, word):
    table = f"s1\tt1\ns2\tä {word}\n"
    with pytest.raises(DataError, match="is the name of a control symbol") as caught:
        parallel.prepare(tmp_path, table)
    assert (caught.value.path, caught.value.line, caught.value.column) == (tmp_path / "train.en", 2, 4)
    prepared, _ = parallel.prepare(tmp_path, table, TokenizerSettings("bpe", size=10))
    assert parallel.lines(prepared)[1] == (2, "s2", f"ä {word}")


@pytest.mark.parametrize("content", ["", "\ufeff", "\t\n", " \t \n\t\n"])
def test_a_text_without_pairs_is_rejected(parallel, tmp_path, content):
    with pytest.raises(DataError, match=r"holds no lines|all of its \d pairs are dropped: \d with an empty side"):
        parallel.prepare(tmp_path, held_out=content.replace("\ufeff", ""))
    table = parallel.write(tmp_path / "table.tsv", content)
    with pytest.raises(DataError, match=r"holds no lines|pairs are dropped"):
        prepare_parallel(tmp_path / "folder", {"train": [table]}, tokenizer=parallel.WORDS)
    assert not (tmp_path / "folder").exists()


def test_the_files_of_splits_are_checked(parallel, tmp_path):
    one = parallel.write(tmp_path / "a", "a\tb\n")
    for splits, reason in (
        ({"valid": [one]}, "no split 'train'"),
        ({"train": []}, "0 files"),
        ({"train": [one] * 3}, "3 files"),
        ({"train": ["-", one]}, "cannot be one side"),
        ({"train": ["-"], "valid": ["-"]}, "one split only"),
        ({"train": [one], "../x": [one]}, "not a valid name of a split"),
    ):
        with pytest.raises(UsageError, match=reason):
            prepare_parallel(tmp_path / "folder", splits, tokenizer=parallel.WORDS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TokenizerSettings("words"),
        lambda: TokenizerSettings(marker="@@"),
        lambda: TokenizerSettings(size=-1),
        lambda: TokenizerSettings(threshold=-1),
        lambda: TokenizerSettings("byte", threshold=2),
        lambda: Filters(0),
        lambda: Filters(max_ratio=0.5),
        lambda: Filters(max_ratio=float("nan")),
        lambda: Filters(sample=0),
    ],
)
def test_invalid_options_are_rejected(make):
    with pytest.raises(UsageError):
        make()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_lines(parallel, tmp_path, monkeypatch):
    monkeypatch.setattr("structattn.text.folders.writing._FLUSH_AT", 1000)  # tokens that wait to be written
    peaks = []  # the first includes what is loaded on first use
    for count in (20, 6_000, 18_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        table = parallel.write(
            folder / "t.tsv", "".join(f"eins {n % 50} zwei\tone {n % 50} two\n" for n in range(count))
        )
        tracemalloc.start()
        prepare_parallel(folder / "out", {"train": [table]}, tokenizer=TokenizerSettings("bpe", size=60))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(open_prepared(folder / "out").pairs("train")) == count
    assert peaks[2] - peaks[1] < 150_000  # the longer text has 300 kB more, and as strings several times that


def test_counting_evicts_rare_words_but_no_character():
    counts = SymbolCounts(capacity=100)
    for number in range(1000):
        counts.add(["common", f"w{chr(0x4E00 + number)}"], np.array([1, 1]))
    assert len([symbol for symbol in counts.symbols() if len(symbol) > 1]) <= 101
    assert counts.as_dict()["common"] == 1000
    assert counts.num_evicted > 800
    assert {chr(0x4E00 + number) for number in range(1000)} <= set("".join(counts.symbols()))


def test_a_folder_of_another_kind_has_no_pairs(parallel, tmp_path):
    from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language

    sizes = FormalLanguageSizes(5, 5, 1, (4, 6), (4, 6))
    prepare_formal_language(tmp_path / "other", "dyck", "faithful", sizes=sizes)
    other = open_prepared(tmp_path / "other")
    with pytest.raises(DataError, match="expected parallel text"):
        other.pairs("train")
    with pytest.raises(DataError, match="expected parallel text"):
        _ = other.sides
    prepared, _ = parallel.prepare(tmp_path)
    with pytest.raises(DataError, match="a tokenizer for each side"):
        _ = prepared.tokenizer
    with pytest.raises(DataError, match="has no split 'test'"):
        prepared.pairs("test")
    with pytest.raises(DataError, match="the text of the split 'train' is not stored"):
        prepared.texts("train", "source")


DAMAGES = {
    "vocabulary.txt": lambda content: content.replace(b"\n", b"x\n", 4),
    "source_vocabulary.txt": lambda content: content + b"more\n",
    "subwords.json": lambda content: json.dumps({**json.loads(content), "marker": "start"}).encode(),
    "source_subwords.json": lambda content: content[:-5],
    "kept.json": lambda content: b'{"source": [4], "target": null}',
    "train/tokens.bin": lambda content: content[:-4],
    "train/offsets.bin": lambda content: content[:-8],
    "train/lines.bin": lambda content: content + b"12345678",
    "train/source/tokens.bin": lambda content: content + b"1234",
    "train/source/offsets.bin": lambda content: content[:-8],
    "header.json": lambda content: content.replace(b'"source_tokens"', b'"other"'),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_detected_when_the_folder_is_opened(parallel, tmp_path, name):
    prepared, _ = parallel.prepare(tmp_path, tokenizer=TokenizerSettings("bpe", joint=False, size=30, threshold=2))
    path = prepared.path / name
    path.write_bytes(DAMAGES[name](path.read_bytes()))
    with pytest.raises(DataError):
        open_prepared(prepared.path)


MERGES = b'{"format_version": 1, "marker": "end", "merges": '
DAMAGED_LISTS = {  # of kept pieces, and of merges
    "kept.json": [b"{}", b"[]", b"{", b'{"source": [true], "target": null}', b'{"source": [999], "target": null}'],
    "subwords.json": [b"{}", b"[]", b"{", MERGES.replace(b"1", b"2") + b"[]}", MERGES.replace(b"end", b"?") + b"[]}"]
    + [MERGES + merges + b"}" for merges in (b"1", b'[["a"]]', b'[["a", 1]]', b'[["a", ""]]', b'["abc"]')],
}


@pytest.mark.parametrize(("name", "content"), [(name, each) for name in DAMAGED_LISTS for each in DAMAGED_LISTS[name]])
def test_a_damaged_list_is_detected(parallel, tmp_path, name, content):
    prepared, _ = parallel.prepare(tmp_path, tokenizer=TokenizerSettings("bpe", size=30))
    (prepared.path / name).write_bytes(content)
    with pytest.raises(DataError, match=re.escape(name)):
        open_prepared(prepared.path)


def test_held_out_pairs_share_no_source_line_with_the_training_pairs(parallel, tmp_path):
    # 600 source lines, each of them twice with different targets and once in capitals, which are normalised
    table = "".join(f"{word} {n}\tt{n} {other}\n" for n in range(600) for word, other in (("S", 1), ("s", 2), ("s", 3)))
    files = parallel.two_files(tmp_path, table)
    options = {"tokenizer": TokenizerSettings("character"), "normalization": Normalization(lowercase=True)}
    shares = {"valid": 0.1, "test": 0.25}
    prepare_parallel(tmp_path / "folder", {"train": files}, hold_out=shares, **options)
    prepared = open_prepared(tmp_path / "folder")
    found = {name: parallel.lines(prepared, name) for name in ("train", "valid", "test")}
    everything = sorted(line for lines in found.values() for line, _, _ in lines)
    assert everything == list(range(1, 1801)), "each pair is in one split"
    sources = {name: {source for _, source, _ in lines} for name, lines in found.items()}
    assert (
        not sources["train"] & sources["valid"]
        | sources["train"] & sources["test"]
        | sources["valid"] & sources["test"]
    )
    assert 36 <= len(sources["valid"]) <= 90, "600 times 0.1, but for more than four deviations"
    assert 108 <= len(sources["test"]) <= 195
    assert prepared.texts("test", "source") == tuple(source for _, source, _ in found["test"])
    assert verify_sources(prepared) == ()
    assert prepared.header.extra["hold_out"] == shares
    prepare_parallel(tmp_path / "again", {"train": files}, hold_out=shares, **options)
    assert parallel.lines(open_prepared(tmp_path / "again"), "test") == found["test"]
    prepare_parallel(tmp_path / "other", {"train": files}, hold_out=shares, filters=Filters(sample_seed=5), **options)
    assert parallel.lines(open_prepared(tmp_path / "other"), "test") != found["test"]


def test_pairs_are_held_out_from_standard_input_and_samples(parallel, tmp_path, monkeypatch):
    table = "".join(f"s{n}\tt{n}\n" for n in range(200))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(table.encode())))
    filters = Filters(sample=50)
    prepare_parallel(
        tmp_path / "folder", {"train": ["-"]}, tokenizer=parallel.WORDS, filters=filters, hold_out={"valid": 0.2}
    )
    prepared = open_prepared(tmp_path / "folder")
    assert len(prepared.pairs("train")) == 50
    train, valid = ({line for line, _, _ in parallel.lines(prepared, name)} for name in ("train", "valid"))
    assert not train & valid
    assert 15 <= len(valid) <= 68


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"valid": 0.0}, "the share held out for 'valid' is 0.0; expected more than 0 and less than 1"),
        ({"valid": 0.5, "test": 0.5}, "the shares held out add up to 1; nothing is left for 'train'"),
        ({"train": 0.5}, "split 'train' has files and is also held out"),
    ],
)
def test_impossible_shares_are_rejected(parallel, tmp_path, shares, message):
    files = parallel.two_files(tmp_path, parallel.GOOD)
    with pytest.raises(UsageError, match=re.escape(message)):
        prepare_parallel(tmp_path / "folder", {"train": files}, tokenizer=parallel.WORDS, hold_out=shares)
    with pytest.raises(DataError, match="none of its pairs was assigned to 'valid'"):
        prepare_parallel(tmp_path / "folder", {"train": files}, tokenizer=parallel.WORDS, hold_out={"valid": 1e-9})
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("level", ["bpe", "word"])
def test_worker_processes_write_the_same_files(parallel, tmp_path, monkeypatch, level):
    monkeypatch.setattr("structattn.tasks.translation.splits._BATCH", 50)
    table = "".join(f"der {n % 7}. größte жук\tthe {n % 5}th large bug {n}\n" for n in range(400))
    settings = TokenizerSettings(level, size=40)
    one, notices = parallel.prepare(tmp_path, table, settings, output="one")
    two, again = parallel.prepare(tmp_path, table, settings, output="two", workers=2)
    assert (one.digest, notices) == (two.digest, again)


def test_the_header_states_the_words_that_were_read_kept_and_dropped(parallel, tmp_path):
    table = "a b  c\tA\n d\tD E\nx y\t\n" + "z " * 200 + "\tZ\n"
    prepared, _ = parallel.prepare(tmp_path, table, filters=Filters(max_characters=100))
    assert prepared.header.extra["words"]["train"] == {
        "source": {"read": 206, "kept": 4, "dropped": 202},
        "target": {"read": 4, "kept": 3, "dropped": 1},
    }


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("level", ["bpe", "sentencepiece-bpe"])
def test_the_number_of_subwords_follows_from_the_text(parallel, tmp_path, level, joint):
    """One for each hundred words: 12,000 of both sides together, 6,000 of each."""
    generator = np.random.default_rng(1)
    words = ["".join(generator.choice(list("abcdefgh"), 4)) for _ in range(400)]
    table = "".join("\t".join(" ".join(generator.choice(words, 5)) for _ in range(2)) + "\n" for _ in range(1200))
    prepared, notices = parallel.prepare(
        tmp_path, table, TokenizerSettings(level, joint), held_out="".join(table.splitlines(keepends=True)[:6])
    )
    size = (120 if joint else 60) + (0 if level == "bpe" else 8 + 2)
    assert prepared.header.tokenizer["size"] == size
    assert 40 < prepared.sides.source.vocabulary.size < 220
    assert not any("occur once" in notice for notice in notices)


def test_subwords_that_are_words_seen_once_are_reported_by_side(parallel, tmp_path):
    table = "".join(f"quelle{number} rot\tziel red\n" for number in range(30))
    _, notices = parallel.prepare(tmp_path, table, TokenizerSettings("bpe", joint=False, size=1000), held_out=table)
    (notice,) = [each for each in notices if "occur once" in each]
    assert re.match(r"3\d of the 3\d source tokens of train are whole words that occur once in it", notice)
    assert notice.endswith("a smaller vocabulary_size (--vocabulary-size) makes them of parts")
