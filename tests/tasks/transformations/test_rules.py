"""The rules on hand-made sentences, on drawn ones, and on the published files."""

from pathlib import Path

import pytest

from structattn.support.seeds import numpy_generator
from structattn.tasks.transformations.rules import NUMBER, TRANSFORMATIONS, main_verb, part_of_speech
from structattn.tasks.transformations.sampling import WEIGHTS, SentenceSampler

PUBLISHED = Path(__file__).resolve().parents[4] / "shared/data/mccoy"
CASES = [
    ("question", "my yak does sleep . decl", "my yak does sleep .", "my yak does sleep .", "none"),
    ("question", "my yak near the newts does sleep . quest",
     "does my yak near the newts sleep ?", "does my yak near the newts sleep ?", "PP"),
    ("question", "my yak who doesn't eat does amuse the newts that do sleep . quest",
     "does my yak who doesn't eat amuse the newts that do sleep ?",
     "doesn't my yak who eat does amuse the newts that do sleep ?", "SRCi"),
    ("question", "my yaks that the newt does admire don't eat . quest",
     "don't my yaks that the newt does admire eat ?", "does my yaks that the newt admire don't eat ?", "ORC"),
    ("question", "my yaks that do admire the newt don't eat . quest",
     "don't my yaks that do admire the newt eat ?", "do my yaks that admire the newt don't eat ?", "SRCt"),
    ("tense", "my yak read . PAST", "my yak read .", "my yak read .", "none"),
    ("tense", "my yak near the newts slept . PRESENT",
     "my yak near the newts sleeps .", "my yak near the newts sleep .", "PP"),
    ("tense", "my yaks that the newt admired ate . PRESENT",
     "my yaks that the newt admires eat .", "my yaks that the newt admires eats .", "ORC"),
    ("tense", "my yaks who amused the newt swam . PRESENT",
     "my yaks who amuse the newt swim .", "my yaks who amuse the newt swims .", "SRCt"),
    ("tense", "my yak who moved admired the newts that the raven amused . PRESENT",
     "my yak who moves admires the newts that the raven amuses .",
     "my yak who moves admires the newts that the raven amuses .", "SRCi"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "source", "right", "wrong", "modifier"), CASES)
def test_rules_on_each_shape(task, source, right, wrong, modifier):
    rules, words = TRANSFORMATIONS[task], tuple(source.split())
    assert rules.target(words) == tuple(right.split())
    assert rules.wrong_target(words) == tuple(wrong.split())
    assert rules.modifier(words) == modifier
    assert rules.split((*words, *rules.target(words))) == (words, rules.target(words))


@pytest.mark.parametrize(
    ("task", "source"),
    [
        ("question", "quest"),
        ("question", "my yak does sleep ."),
        ("question", "my yak sleep . quest"),
        ("question", "my yak does sleep quest"),
        ("question", "my yak does amuse . quest"),
        ("question", "my yak does sleep the newt . quest"),
        ("question", "yak does sleep . quest"),
        ("question", "my does sleep . quest"),
        ("question", "my yak does slept . quest"),
        ("question", "my yak near newt the does sleep . quest"),
        ("question", "does my yak sleep ? decl"),
        ("tense", "my yak sleeps . PRESENT"),
        ("tense", "my yak who the newt greeted slept . PRESENT"),
        ("tense", "my yak who the gnu amused slept . PRESENT"),
        ("tense", "my yak near one gnu slept . PAST"),
    ],
)
def test_other_sentences_are_refused(task, source):
    with pytest.raises(ValueError, match=r"not a sentence of the grammar|expected decl or quest"):
        TRANSFORMATIONS[task].target(tuple(source.split()))


def test_the_linear_rule_can_only_differ_where_another_noun_intervenes():
    """It differs exactly where the noun before the main verb has another number than the head."""
    sampler, rules = SentenceSampler(numpy_generator(3, "x"), WEIGHTS["tense"], False), TRANSFORMATIONS["tense"]
    for _ in range(2000):
        source = (*sampler(), "PRESENT")
        right, wrong = rules.target(source), rules.wrong_target(source)
        changed = [index for index, pair in enumerate(zip(right, wrong, strict=True)) if pair[0] != pair[1]]
        assert len(changed) <= 1
        verbs = [index for index, word in enumerate(right) if part_of_speech(word) == "V"]
        main = verbs[source[2] in ("who", "that")]
        nearest = max(index for index in range(main) if source[index] in NUMBER)
        assert changed == ([main] if NUMBER[source[1]] != NUMBER[source[nearest]] else [])
        assert main_verb(right) == right[main]


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="../shared/data/mccoy is not there")
@pytest.mark.parametrize("task", TRANSFORMATIONS)
def test_the_rules_give_every_published_target(task):
    rules, count = TRANSFORMATIONS[task], 0
    for part, differing in (("dev", 0), ("test", 0), ("gen", 10_000)):
        pairs = [line.split("\t") for line in (PUBLISHED / f"{task}.{part}").read_text().splitlines()]
        pairs = [(tuple(source.split()), tuple(target.split())) for source, target in pairs]
        assert [rules.target(source) for source, _ in pairs] == [target for _, target in pairs]
        assert sum(rules.wrong_target(source) != target for source, target in pairs) == differing
        count += len(pairs)
    assert count == 21_000


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="../shared/data/mccoy is not there")
def test_parts_of_speech_are_the_published_ones():
    lines = [line.split("\t") for line in (PUBLISHED / "pos_tense.txt").read_text().splitlines()]
    unused = {"can", "will", "could", "would", "did", "didn't", "t"}  # words of other data sets
    known = {word: tag for word, tag in lines if tag in set("DNVAPRT") and word not in unused}
    assert {word: part_of_speech(word) for word in known} == known
