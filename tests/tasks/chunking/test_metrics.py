"""Chunk scores: hand-made cases, conlleval's own rules of beginnings and ends, and its counts."""

import random

import pytest

from structattn.tasks.chunking.metrics import Chunk, chunks_of, tagging_scores


def conlleval_chunks(tags):
    """The chunks by the rules of conlleval's startOfChunk and endOfChunk, tag by tag."""
    found, start = [], None
    previous_prefix, previous_type = "O", ""
    for position, tag in enumerate([*tags, "O"]):
        prefix, kind = [*tag.split("-", 1), ""][:2]
        changed = kind != previous_type
        ends = previous_prefix in "BI" and (prefix in "BO" or changed)
        starts = prefix == "B" or (prefix == "I" and (previous_prefix == "O" or changed))
        if ends:
            found.append(Chunk(start, position, previous_type))
        if starts:
            start = position
        previous_prefix, previous_type = prefix, kind
    return found


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-NP I-NP", [(0, 2, "NP")]),
        ("B-NP B-NP", [(0, 1, "NP"), (1, 2, "NP")]),
        ("B-NP I-VP", [(0, 1, "NP"), (1, 2, "VP")]),
        ("I-NP I-NP O I-NP", [(0, 2, "NP"), (3, 4, "NP")]),
        ("O B-A-B I-A-B", [(1, 3, "A-B")]),
        ("B-NP O I-NP B-PP", [(0, 1, "NP"), (2, 3, "NP"), (3, 4, "PP")]),
    ],
)
def test_chunks(tags, expected):
    assert chunks_of(tags.split()) == [Chunk(*each) for each in expected] == conlleval_chunks(tags.split())


def test_chunks_are_those_of_conlleval_for_random_tags():
    generator = random.Random(1)
    for _ in range(2000):
        tags = generator.choices(["O", "B-NP", "I-NP", "B-VP", "I-VP"], k=generator.randint(0, 8))
        assert chunks_of(tags) == conlleval_chunks(tags), tags


@pytest.mark.parametrize("tag", ["", "X", "NP", "B", "B-", "I-", "O-NP", "E-NP", "b-NP"])
def test_other_tags_are_refused(tag):
    with pytest.raises(ValueError, match="is not a chunk tag"):
        chunks_of([tag])


def test_scores_of_a_hand_made_case():
    gold = [["B-NP", "I-NP", "O", "B-VP"], ["B-NP", "B-NP"]]
    guess = [["B-NP", "I-NP", "B-PP", "B-VP"], ["B-NP", "I-NP"]]  # right: NP 0-2, VP 3-4; wrong: PP, NP 0-2
    scores = tagging_scores(gold, guess)
    assert (scores.words, scores.accuracy) == (6, pytest.approx(4 / 6))
    overall = scores.overall
    assert (overall.correct, overall.predicted, overall.gold) == (2, 4, 4)
    assert (overall.precision, overall.recall, overall.f1) == (0.5, 0.5, 0.5)
    assert list(scores.types) == ["NP", "PP", "VP"]
    noun = scores.types["NP"]
    assert (noun.precision, noun.recall, noun.f1) == (1 / 2, 1 / 3, pytest.approx(0.4))
    assert scores.types["PP"].recall == scores.types["PP"].f1 == 0.0


def test_nothing_predicted_and_nothing_to_score():
    assert tagging_scores([["B-NP"]], [["O"]]).overall.f1 == 0.0
    with pytest.raises(ValueError, match="no words"):
        tagging_scores([[]], [[]])
    with pytest.raises(ValueError, match="zip"):
        tagging_scores([["O"]], [["O", "O"]])
