"""Trees: strict reading, what is dropped, linearization and back, and repair of malformed output."""

import random
from pathlib import Path

import pytest

from structattn.support.errors import DataError
from structattn.tasks.parsing.prepare import read_trees
from structattn.tasks.parsing.trees import MAX_DEPTH, Leaf, Repaired, Tree, bracketed, leaves_of, linearize, repair
from structattn.text.reading import Notices

DATA = Path(__file__).resolve().parents[4] / "shared/data"
CAT = "(S (NP (DT the) (NN cat)) (VP (VBD sat)) (. .))"


def read(tmp_path, text):
    path = tmp_path / "trees"
    path.write_bytes(text.encode())
    return [(line, bracketed(tree)) for line, tree in read_trees(path, Notices())]


def random_tree(generator, depth=0):
    if depth and generator.random() < 0.4:
        return Leaf(generator.choice(["DT", "NN", "."]), generator.choice("abc"))
    children = tuple(random_tree(generator, depth + 1) for _ in range(generator.randint(1, 3 if depth < 5 else 1)))
    return Tree(generator.choice(["S", "NP", "VP"]), children)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CAT, CAT),
        (f"(ROOT {CAT})", CAT),
        (f"( {CAT})", CAT),
        (f"( {CAT} {CAT})", f"(TOP {CAT} {CAT})"),
        ("(TOP (UH Oh))", "(TOP (UH Oh))"),
        ("(S (NP-SBJ-1 (-NONE- *)) (VP=2 (VB go) (NP|X (-NONE- *T*-1) (PRP$ my))))", "(S (VP (VB go) (NP (PRP$ my))))"),
        ("(NP (NN a\u2028\u00a0b\x85) (NN\tc))", "(NP (NN a\u2028\u00a0b\x85) (NN c))"),
        ("(NP (-LRB- -LRB-) (NN a-b))", "(NP (-LRB- -LRB-) (NN a-b))"),
    ],
)
def test_traces_functions_and_roots_are_dropped(tmp_path, text, expected):
    assert read(tmp_path, text) == [(1, expected)]


def test_trees_may_take_several_lines(tmp_path):
    assert read(tmp_path, "\n( (S\n  (NN a))\n)\n\n(S (NN b)) (S (NN c))\n") == [
        (2, "(S (NN a))"),
        (6, "(S (NN b))"),
        (6, "(S (NN c))"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN a)", ":1: a tree is not closed"),
        ("(S (NN a)))", r":1: '\)' is outside any tree"),
        ("\n(S (NN a)) b", ":2: 'b' is outside any tree"),
        ("(S ())", r":1: a bracket of 0 symbols \(\) and 0 brackets"),
        ("(S (NP))", ":1: a bracket of 1 symbols"),
        ("(S the (NN a) cat)", ":1: a bracket of 3 symbols"),
        ("((DT the) cat)", r":1: a bracket of 1 symbols \(cat\) and 1 brackets; expected \(TAG word\) or \(LABEL"),
        ("(S ((DT the) cat))", r":1: a bracket of 1 symbols \(cat\) and 1 brackets"),
        ("(S (NN a b))", ":1: a bracket of 3 symbols"),
        ("(NN a)", ":1: a word with its tag alone"),
        ("(S\n((NP (NN a))\n(NN b)))", ":2: a bracket inside a tree has no label"),
        ("( ( (S (NN a))))", ":1: a bracket inside a tree has no label"),
        ("(S (-NONE- *))", ":1: the tree has no words but traces"),
        ("(S " * (MAX_DEPTH + 1), f":1: brackets are nested more than {MAX_DEPTH} deep"),
        ("\n", "has no trees"),
        ("(S (NN a\0))", ":1:9: a NUL byte"),
    ],
)
def test_malformed_trees_are_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_linearization(tmp_path):
    tree = next(read_trees(_written(tmp_path, CAT), Notices())).tree
    assert " ".join(linearize(tree)) == "(S (NP XX XX )NP (VP XX )VP XX )S"
    assert " ".join(linearize(tree, "kept")) == "(S (NP DT NN )NP (VP VBD )VP . )S"
    assert repair(linearize(tree, "kept"), ["the", "cat", "sat", "."]).tree == tree


def _written(tmp_path, text):
    (tmp_path / "trees").write_text(text)
    return tmp_path / "trees"


def test_random_trees_survive_linearization():
    generator = random.Random(1)
    for _ in range(300):
        tree = random_tree(generator)
        found = repair(linearize(tree, "kept"), [leaf.word for leaf in leaves_of(tree)])
        assert (found.tree, found.malformed) == (tree, False)


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [
        ("", "(TOP (XX a) (XX b) (XX c))"),
        ("XX XX XX", "(TOP (XX a) (XX b) (XX c))"),
        ("(S XX XX XX", "(S (XX a) (XX b) (XX c))"),
        ("(S XX )S", "(S (XX a) (XX b) (XX c))"),
        ("(S (NP XX )NP )S", "(S (NP (XX a)) (XX b) (XX c))"),
        ("(S (NP XX", "(S (NP (XX a) (XX b) (XX c)))"),
        ("(S (NP XX )S XX XX", "(TOP (S (NP (XX a))) (XX b) (XX c))"),
        ("(S (NP XX )VP XX XX )NP )S", "(S (NP (XX a) (XX b) (XX c)))"),
        ("(S XX (NP )NP XX XX )S", "(S (XX a) (XX b) (XX c))"),
        ("(S XX XX XX XX XX )S", "(S (XX a) (XX b) (XX c))"),
        ("(NP XX )NP (VP XX XX )VP", "(TOP (NP (XX a)) (VP (XX b) (XX c)))"),
        (")S ( ) (S <unk> )S", "(TOP (XX a) (XX b) (S (XX c)))"),
        ("(S XX <unk> XX )S", "(S (XX a) (XX b) (XX c))"),
        ("(S XX ( XX )S", "(S (XX a) (XX b) (XX c))"),
        ("(S XX XX ) )S", "(S (XX a) (XX b) (XX c))"),
    ],
)
def test_malformed_output_is_repaired(symbols, expected):
    found = repair(symbols.split(), ["a", "b", "c"])
    assert (bracketed(found.tree), found.malformed) == (expected, True)


def test_tags_are_malformed_where_all_words_are_alike():
    symbols = ["(S", "NN", "XX", ")S"]
    assert repair(symbols, ["a", "b"], "kept") == Repaired(Tree("S", (Leaf("NN", "a"), Leaf("XX", "b"))), False)
    assert repair(symbols, ["a", "b"], "normalized") == Repaired(Tree("S", (Leaf("XX", "a"), Leaf("XX", "b"))), True)


def test_any_symbols_give_a_tree_over_the_words():
    generator = random.Random(2)
    for _ in range(500):
        symbols = generator.choices(["(S", ")S", "(NP", ")NP", "XX", "<unk>"], k=generator.randint(0, 30))
        words = [str(n) for n in range(generator.randint(1, 6))]
        assert [leaf.word for leaf in leaves_of(repair(symbols, words).tree)] == words
    deep = repair(["(S"] * 5000, ["a"])
    assert [leaf.word for leaf in leaves_of(deep.tree)] == ["a"]
    with pytest.raises(ValueError, match="no words"):
        repair(["(S", ")S"], [])


@pytest.mark.parametrize("name", ["gum-const", "ptb-sample-nltk"])
def test_real_trees_are_those_without_traces_and_functions(name):
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"../shared/data/{name} is not there")
    trees, clean = (
        [each.tree for each in read_trees(folder / f"valid{kind}.trees", Notices())] for kind in ("", ".clean")
    )
    assert trees == clean
    lines = (folder / "valid.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert [" ".join(leaf.word for leaf in leaves_of(tree)) for tree in trees] == lines
