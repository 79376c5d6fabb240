"""Bracketing scores: hand-made cases with evalb's conventions, and what PYEVALB gave for random pairs of trees."""

from pathlib import Path

import pytest

from structattn.metrics.bracketing import Bracket, bracketing_scores, unlabelled
from structattn.tasks.parsing.trees import Leaf, Tree, brackets_of, branching_brackets, leaves_of


def tree(text):
    """Read a tree without anything being dropped."""
    stack = [[]]
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            stack.append([])
        elif token == ")":
            label, *children = stack.pop()
            stack[-1].append(Leaf(label, *children) if isinstance(children[0], str) else Tree(label, tuple(children)))
        else:
            stack[-1].append(token)
    return stack[0][0]


def brackets(text, tags=None):
    found = tree(text)
    return [Bracket(*span) for span in brackets_of(found, tags or [leaf.tag for leaf in leaves_of(found)])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(S (NP (NN a)) (VP (VB b)))", [("NP", 0, 1), ("VP", 1, 2), ("S", 0, 2)]),
        ("(TOP (S (NN a)))", [("S", 0, 1)]),
        ("(ROOT (NN a))", []),
        ("(S (NP (NN a)) (, ,) (`` ``) (VP (VB b) ('' '')) (. ?) (: -))", [("NP", 0, 1), ("VP", 1, 2), ("S", 0, 2)]),
        ("(S (NP (NN a)) (PRN (, ,) (. .)))", [("NP", 0, 1), ("S", 0, 1)]),
        ("(S (-LRB- -LRB-) (NN a) ($ $))", [("S", 0, 3)]),
        ("(VP (VB b) (PRT (RP up)) (ADVP (RB c)))", [("ADVP", 1, 2), ("ADVP", 2, 3), ("VP", 0, 3)]),
        ("(NP (NP (NP (NN a))))", [("NP", 0, 1)] * 3),
    ],
)
def test_brackets_follow_the_conventions_of_evalb(text, expected):
    assert sorted(brackets(text)) == sorted(expected)


def test_the_true_tags_decide_what_is_deleted():
    assert brackets("(S (NP (XX a)) (XX b))", ["NN", "."]) == [("NP", 0, 1), ("S", 0, 1)]
    with pytest.raises(ValueError, match="a tree of 2 words with 1 tags"):
        brackets("(S (NN a) (NN b))", ["NN"])


def scores(gold, guess):
    return bracketing_scores([brackets(each) for each in gold], [brackets(each) for each in guess])


def test_equal_brackets_count_separately():
    found = scores(["(NP (NP (NN a)))"], ["(NP (NP (NP (NN a))))"])
    assert (found.correct, found.predicted, found.gold) == (2, 3, 2)
    assert (found.precision, found.recall, found.f1, found.exact) == (2 / 3, 1.0, pytest.approx(0.8), 0.0)


def test_sentences_are_added_up():
    whole = "(S (NP (NN a)) (VP (VB b)))"
    found = scores([whole, "(S (NP (NN a) (NN b)))"], [whole, "(S (VP (NN a)) (NN b))"])
    assert (found.sentences, found.correct, found.predicted, found.gold) == (2, 4, 5, 5)
    assert found.exact == 0.5


def test_no_parse_and_no_brackets():
    found = bracketing_scores([[Bracket("S", 0, 1)]], [[]])
    assert (found.precision, found.recall, found.f1) == (0, 0, 0)
    assert bracketing_scores([[]], [[]]).exact == 1.0
    with pytest.raises(ValueError, match="no sentences"):
        bracketing_scores([], [])


def test_brackets_without_labels_count_once():
    assert unlabelled([Bracket("NP", 0, 1), Bracket("S", 0, 1), Bracket("S", 0, 2)]) == [("", 0, 1), ("", 0, 2)]


def test_branching_trees():
    tags = ["DT", "NN", ",", "VB", "."]
    assert branching_brackets(tags, "right", "X") == [("X", 0, 3), ("X", 1, 3)]
    assert branching_brackets(tags, "left", "X") == [("X", 0, 3), ("X", 0, 2)]
    assert branching_brackets(["NN"], "left", "X") == [("X", 0, 1)]
    assert branching_brackets(["."], "right", "X") == []


PYEVALB = (Path(__file__).parent / "pyevalb.tsv").read_text().splitlines()[1:]
"""Random pairs of trees, none with two equal brackets, of which PYEVALB counts one in the numerator; then the matched
brackets, those of the second tree and of the first, precision and recall that PYEVALB 0.1.3 gave."""


def test_scores_are_those_of_pyevalb():
    assert len(PYEVALB) == 300
    for line in PYEVALB:
        gold, parsed, *theirs = line.split("\t")
        ours = scores([gold], [parsed])
        found = ours.correct, ours.predicted, ours.gold, ours.precision, ours.recall
        assert found == tuple(map(float, theirs)), (gold, parsed)
