"""Labelled strings: FLaRe's negatives by exact probabilities, well-shaped negatives, splits, and trivial rules."""

import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest

from structattn.support.errors import DataError, UsageError
from structattn.support.seeds import numpy_generator
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.tasks.recognition.examples import MEMBER, UNIFORM, flare_examples, perturbed
from structattn.tasks.recognition.hard import Split, edit, hard_examples
from structattn.tasks.recognition.prepare import RecognitionSizes, language_of, prepare_recognition
from structattn.tasks.recognition.registry import FLARE_LANGUAGES, recognition_language
from structattn.tasks.recognition.rules import answers_of_rules, trivial_rules
from structattn.text.folders.prepared import open_prepared

SMALL = RecognitionSizes(300, 80, 4, 12, 14, 16)
REGULAR = ("even-pairs", "repeat-01", "parity", "cycle-navigation", "modular-arithmetic-simple", "dyck-2-3", "first")
OF_LIBRARY = ("padded-reversal", "dyck", "hardest-cfl", "unmarked-copy", "count-and-copy", "marked-reverse-and-copy")
QUICK = ("majority", "unmarked-reversal", "marked-copy", "binary-addition", "stack-manipulation", "dyck")
FIGURES = {  # language: majority class, length, shape, on FLaRe's test set; of stack manipulation on its training set
    "marked-reversal": (0.506, 0.777, 0.9635),
    "marked-copy": (0.503, 0.772, 0.9623),
    "odds-first": (0.505, 0.777, 0.9641),
    "bucket-sort": (0.503, 0.763, 0.9421),
    "missing-duplicate-string": (0.507, 0.755, 0.9451),
    "binary-addition": (0.507, 0.496, 0.9154),
    "binary-multiplication": (0.507, 0.496, 0.9194),
    "compute-sqrt": (0.504, 0.505, 0.8862),
    "cycle-navigation": (0.503, 0.503, 0.9331),
    "modular-arithmetic-simple": (0.504, 0.782, 0.9970),
    "dyck-2-3": (0.508, 0.771, 0.9519),
    "unmarked-reversal": (0.503, 0.763, 0.7635),
    "repeat-01": (0.501, 0.778, 0.8727),
    "even-pairs": (0.514,),
    "parity": (0.506,),
    "first": (0.502,),
    "majority": (0.504,),
    "stack-manipulation": (0.506, None, 0.9266),
}


def chi_square_fits(drawn, expected):
    counts, total = Counter(drawn), len(drawn)
    assert counts.keys() <= expected.keys()
    assert math.isclose(sum(expected.values()), 1)
    statistic = sum((counts[value] - total * share) ** 2 / (total * share) for value, share in expected.items())
    freedom = len(expected) - 1
    return statistic < freedom + 4.5 * math.sqrt(2 * freedom) + 5


def edited(shares, high, num_symbols):
    """Return the distribution of strings after one more edit, by enumeration."""
    after = Counter()
    for string, share in shares.items():
        kinds = []
        if len(string) < high:
            places = range(len(string) + 1)
            kinds.append([(*string[:p], a, *string[p:]) for p in places for a in range(num_symbols)])
        if string:
            kinds.append([(*string[:p], a, *string[p + 1 :]) for p in range(len(string)) for a in range(num_symbols)
                          if a != string[p]])  # fmt: skip
            kinds.append([(*string[:p], *string[p + 1 :]) for p in range(len(string))])
        for results in kinds:
            for result in results:
                after[result] += share / len(kinds) / len(results)
    return after


@pytest.mark.parametrize("string", [(), (0, 1), (0, 1, 1)])
def test_edits_are_uniform_over_the_possible_ones(string):
    generator, shares = numpy_generator(1, len(string)), {string: 1.0}
    for num_edits in (1, 2):
        shares = edited(shares, 3, 2)
        drawn = [perturbed(string, num_edits, 3, 2, generator) for _ in range(3000)]
        assert chi_square_fits(drawn, shares)


def test_negatives_after_rejection():
    """Uniform strings, and members with K ~ Geometric(1/2) edits, half each; members are drawn again."""
    language, high = recognition_language("repeat-01"), 2
    sources = {(): 0.5, (0, 1): 0.5}
    expected, after = Counter(), sources
    for num_edits in range(1, 40):
        after = edited(after, high, 2)
        for string, share in after.items():
            expected[string, num_edits] += 0.5 * share * 0.5**num_edits
    for length in range(high + 1):
        for string in itertools.product((0, 1), repeat=length):
            expected[string, UNIFORM] += 0.5 / (high + 1) / 2**length
    negatives = {key: share for key, share in expected.items() if key[0] not in sources}
    total, common = sum(negatives.values()), Counter()
    for (string, num_edits), share in negatives.items():
        common[string, min(num_edits, 4)] += share / total
    examples = flare_examples(language, 6000, high, numpy_generator(2))
    drawn = [(each.string, min(each.edits, 4)) for each in examples if not each.is_member]
    assert chi_square_fits(drawn, common)
    assert chi_square_fits([each.is_member for each in examples], {True: 0.5, False: 0.5})


def test_excluded_strings_are_drawn_again():
    language = recognition_language("repeat-01")
    excluded = {(), (0, 1), (0,)}
    drawn = {each.string for each in flare_examples(language, 200, 4, numpy_generator(3), excluded)}
    assert not drawn & excluded
    assert (0, 1, 0, 1) in drawn
    with pytest.raises(UsageError, match="repeat-01: members of length 0 to 2: 100 draws gave none that is needed"):
        flare_examples(language, 20, 2, numpy_generator(4), excluded)


@pytest.mark.parametrize("name", ["marked-copy", "stack-manipulation", "dyck-2-3", "binary-addition"])
def test_an_edit_keeps_the_length_and_changes_one_or_two_places(name):
    language, generator = recognition_language(name), numpy_generator(5)
    lengths = language.valid_lengths(5, 20) * 20
    for string in language.sample_each(lengths, generator):
        changed = edit(string, language.classes, generator)
        places = [p for p in range(len(string)) if changed[p] != string[p]]
        assert len(changed) == len(string)
        assert len(places) <= 2
        if len(places) == 2:  # a swap within a class
            assert sorted(changed) == sorted(string)
            assert len({language.classes[string[p]] for p in places}) == 1
    assert edit((), language.classes, generator) == ()


def test_a_string_belongs_to_one_split():
    shares = ((4, {"train": 0.5, "test": 0.5}), (6, {"test": 1.0}))
    train, test = (Split(name, shares) for name in ("train", "test"))
    every = [string for length in range(7) for string in itertools.product((0, 1), repeat=length)]
    assert all((string in train) + (string in test) == 1 for string in every)
    short = [string for string in every if len(string) <= 4]
    assert 5 < sum(string in train for string in short) < 26
    assert not any(string in train for string in every if len(string) > 4)


@pytest.mark.parametrize("name", ["majority", "compute-sqrt", "dyck", "first"])
def test_well_shaped_negatives(name):
    language = recognition_language(name)
    shape = language.has_shape or (lambda string: True)
    everywhere = Split("all", ((30, {"all": 1.0}),))
    lengths = language.valid_lengths(8, 12)
    examples = hard_examples(language, lengths, everywhere, shape, numpy_generator(6))
    assert [len(each.string) for each in examples] == [length for length in lengths for _ in range(2)]
    assert language.accepts_each([each.string for each in examples]) == [True, False] * len(lengths)
    assert all(shape(each.string) for each in examples)
    assert {each.edits for each in examples} <= {MEMBER, 1, 2}
    if name == "majority":
        negatives = [each.string for each in examples if not each.is_member]
        assert {len(string) - 2 * sum(string) for string in negatives} <= {0, 1}


def strings_of(prepared, split):
    sequences = prepared.split(split)
    return [tuple((sequences[i] - FIRST_SYMBOL).tolist()) for i in range(len(sequences))]


def rule_scores(prepared, split="test"):
    labels = (np.asarray(prepared.edits(split)) == MEMBER).tolist()
    train = zip(strings_of(prepared, "train"), prepared.edits("train").tolist(), strict=True)
    rules = trivial_rules(language_of(prepared), [string for string, edits in train if edits == MEMBER])
    answers = answers_of_rules(rules, strings_of(prepared, split), labels)
    return {name: sum(right) / len(right) for name, right in answers.items()}


@pytest.mark.parametrize("name", QUICK)
def test_no_rule_decides_hard_data(tmp_path, name):
    check_hard_data(tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in (*FLARE_LANGUAGES, *OF_LIBRARY) if name not in (*REGULAR, *QUICK)])
def test_no_rule_decides_hard_data_of_more_languages(tmp_path, name):
    check_hard_data(tmp_path, name)


def check_hard_data(tmp_path, name):
    prepare_recognition(tmp_path / "data", name, "hard", sizes=SMALL)
    prepared = open_prepared(tmp_path / "data")
    scores = rule_scores(prepared)
    assert scores.pop("neighbours") <= 0.7 or name in FLARE_LANGUAGES  # 300 training strings do not have all pairs
    assert max(scores.values()) <= 0.6
    seen = [set(strings_of(prepared, split)) for split in prepared.splits]
    assert not any(left & right for left, right in itertools.combinations(seen, 2))
    lengths = Counter(zip(map(len, strings_of(prepared, "test")), prepared.edits("test") == MEMBER, strict=True))
    assert all(lengths[length, True] == lengths[length, False] for length, _ in lengths)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FLARE_LANGUAGES if name not in REGULAR])
def test_no_rule_decides_hard_data_of_the_default_size(tmp_path, name):
    prepare_recognition(tmp_path / "data", name, "hard")
    prepared = open_prepared(tmp_path / "data")
    assert max(rule_scores(prepared).values()) <= 0.6
    assert max(map(len, strings_of(prepared, "test"))) >= 199
    assert len(prepared.split("test")) > 1800


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_trivial_rules_score_what_they_score_on_the_data_of_flare(name):
    language, of_training = recognition_language(name, "flare"), name == "stack-manipulation"
    count, high = (10_000, 40) if of_training else (5_010, 500)
    examples = flare_examples(language, count, high, numpy_generator(0, "recognition", name, "test"))
    strings, labels = [each.string for each in examples], [each.is_member for each in examples]
    answers = answers_of_rules(trivial_rules(language, []), strings, labels)
    for rule, figure in zip(("majority class", "length", "shape"), FIGURES[name], strict=False):
        if figure is not None:
            score = sum(answers[rule]) / count
            assert abs(score - figure) < 4 * math.sqrt(figure * (1 - figure) / count), (rule, score)


def test_a_folder_holds_labels_edits_and_the_language(tmp_path):
    folder = tmp_path / "data"
    prepare_recognition(folder, "dyck-2-3", sizes=SMALL)
    prepared = open_prepared(folder)
    assert [*prepared.splits] == ["train", "valid", "valid-long", "test", "test-held-out", "test-edit-distance"]
    language = language_of(prepared)
    assert language is recognition_language("dyck-2-3")
    for split in prepared.splits:
        labels = (np.asarray(prepared.edits(split)) == MEMBER).tolist()
        assert language.accepts_each(strings_of(prepared, split)) == labels
    trained = {*strings_of(prepared, "train"), *strings_of(prepared, "valid"), *strings_of(prepared, "valid-long")}
    assert not trained & {*strings_of(prepared, "test-held-out")}
    assert not any(prepared.edits("test-edit-distance") == MEMBER)
    prepare_recognition(tmp_path / "again", "dyck-2-3", sizes=SMALL)
    assert open_prepared(tmp_path / "again").digest == prepared.digest
    prepare_recognition(tmp_path / "other", "dyck-2-3", sizes=SMALL, seed=2)
    other = open_prepared(tmp_path / "other")
    assert strings_of(other, "test") == strings_of(prepared, "test")
    assert strings_of(other, "train") != strings_of(prepared, "train")


def test_own_grammars_and_automata(tmp_path):
    (tmp_path / "count.cfg").write_text("S -> a S b | c S | a b\n")
    (tmp_path / "ends.fsa").write_text("q0 a q0\nq0 b q1\nq1 a q0\nq1\n")
    for name, protocol in itertools.product(("count.cfg", "ends.fsa"), ("flare", "hard")):
        folder = tmp_path / f"{name}-{protocol}"
        sizes = RecognitionSizes(60, 40, 4 if protocol == "hard" else 40, 8, 9, 10)
        prepare_recognition(folder, str(tmp_path / name), protocol, sizes=sizes)
        prepared = open_prepared(folder)
        language = language_of(prepared)
        labels = (np.asarray(prepared.edits("test")) == MEMBER).tolist()
        assert language.name == name
        assert language.accepts_each(strings_of(prepared, "test")) == labels
        assert 0 < sum(labels) < len(labels)


def test_errors(tmp_path):
    with pytest.raises(UsageError, match="train is 0; expected at least 1"):
        RecognitionSizes(train=0)
    with pytest.raises(UsageError, match=r"\[40, 30, 30\]; expected them in increasing order"):
        RecognitionSizes(max_length_long=30)
    with pytest.raises(UsageError, match=r"\[40, 80, 60\].* \(--max-length, --max-length-long, --max-length-test\)"):
        RecognitionSizes(max_length_test=60)
    with pytest.raises(UsageError, match="max_length_test is 0; expected at least 1"):
        RecognitionSizes(max_length_test=0)
    (tmp_path / "one.regex").write_text("a\n")
    with pytest.raises(UsageError, match=r"one\.regex: split 'train' has no members or no negatives"):
        prepare_recognition(
            tmp_path / "data", str(tmp_path / "one.regex"), "hard", sizes=RecognitionSizes(8, 8, 4, 4, 4, 4)
        )
    assert not (tmp_path / "data").exists()
    prepare_recognition(str(tmp_path / "data"), "parity", sizes=SMALL)
    header = json.loads((tmp_path / "data" / "header.json").read_text())
    header["extra"]["protocol"] = "soft"
    (tmp_path / "data" / "header.json").write_text(json.dumps(header))
    with pytest.raises(DataError, match="language, protocol and definition are 'parity', 'soft', None"):
        language_of(open_prepared(tmp_path / "data"))
