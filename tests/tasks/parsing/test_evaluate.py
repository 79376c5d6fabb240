"""A parser from a file of trees to scores, trees of sentences, and a report; also with a stack in the decoder."""

import json
import os
import sys
from dataclasses import asdict
from unittest.mock import Mock

import pytest
from tests.program import invoke, succeed

from structattn.loading.runs import load
from structattn.metrics.bracketing import Bracket, bracketing_scores
from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError, UsageError
from structattn.tasks.parsing.evaluate import ParsingScores, TreeScores, parsing_scores, write_parsing
from structattn.tasks.parsing.predict import make_parser, treebank_words
from structattn.tasks.parsing.prepare import read_trees
from structattn.tasks.parsing.trees import brackets_of, leaves_of
from structattn.text.folders.prepared import open_prepared
from structattn.text.reading import Notices
from structattn.training.run_training import train

TREES = """(ROOT (S (NP-SBJ (DT the) (NN cat)) (VP (VBD sat)) (. .)))
(ROOT (S (NP-SBJ (DT a) (NN dog)) (VP (VBD saw) (NP (DT the) (NN cat))) (. .)))
(ROOT (S (NP-SBJ (NN dog)) (VP (VBD ran)) (. .)))
"""
SIZES = {"kind": "encoder_decoder", "d_model": 16, "num_heads": 2, "d_ff": 16, "dropout": 0.0}


def run(*arguments, **options):
    return succeed(*arguments, **options).stdout


@pytest.fixture(scope="module")
def parser_run(tmp_path_factory):
    """A parser with a stack in the decoder, hardly trained."""
    folder = tmp_path_factory.mktemp("parser")
    (folder / "my.trees").write_text(TREES)
    run("prepare", "trees", "--train", folder / "my.trees", "--valid", folder / "my.trees", "-o", folder / "data")
    model = {**SIZES, "encoder": {"layers": 1}, "decoder": {"layers": "1.superposition-8.1"}}
    training = {"batches": {"kind": "pairs", "max_tokens": 200}, "max_epochs": 15, "loss": "token_mean"}
    training |= {"optimizer": {"learning_rate": 0.01}, "validate_every": 15}
    tree = {"task": "translation", "data": str(folder / "data"), "model": model, "training": training}
    train(resolve_settings(tree), folder / "run")
    return folder


def test_sentences_and_linearized_trees_are_the_two_sides(parser_run):
    prepared = open_prepared(parser_run / "data")
    assert prepared.texts("valid", "source")[0] == "the cat sat ."
    assert prepared.texts("valid", "target")[0] == "(S (NP XX XX )NP (VP XX )VP XX )S"
    assert prepared.header.sources[0].path.endswith("my.trees")


@pytest.mark.usefixtures("without_drawing")
def test_scores_of_a_file_of_trees(parser_run):
    assert "right-branching" in run(
        "evaluate", parser_run / "run", "--suite", "trees", "--file", parser_run / "my.trees"
    )
    kept = json.loads((parser_run / "run/analyses/parsing-my.json").read_text())
    gold = [each.tree for each in read_trees(parser_run / "my.trees", Notices())]
    leaves = [list(leaves_of(tree)) for tree in gold]
    sentences = "".join(" ".join(leaf.word for leaf in each) + "\n" for each in leaves)
    (parser_run / "parsed").write_text(run("predict", parser_run / "run", input=sentences))
    parsed = [each.tree for each in read_trees(parser_run / "parsed", Notices())]
    brackets = [
        [[Bracket(*span) for span in brackets_of(tree, [leaf.tag for leaf in each])] for tree, each in pairs]
        for pairs in (list(zip(gold, leaves, strict=True)), list(zip(parsed, leaves, strict=True)))
    ]
    assert kept["scores"]["labelled"] == asdict(bracketing_scores(*brackets)), "those of the trees that parse writes"
    assert kept["malformed"] == 0
    right = kept["right_branching"]  # (the (cat sat)), (a (dog (saw (the cat)))) and (dog ran), all NP
    assert (right["labelled"]["correct"], right["labelled"]["predicted"]) == (1, 7)
    assert right["unlabelled"]["correct"] == 5
    run("report", parser_run / "run", "-o", parser_run / "page")
    page = (parser_run / "page/index.html").read_text()
    assert "Parsing: my" in page
    assert "right-branching trees" in page


def test_unconstrained_outputs_are_repaired(parser_run):
    arguments = [parser_run / "run", "--suite", "trees", "--file", parser_run / "my.trees", "--json"]
    run("evaluate", *arguments, "evaluation.constrained=false", "evaluation.max_length=4")
    assert json.loads((parser_run / "run/analyses/parsing-my.json").read_text())["malformed"] == 1, "all are cut"
    run("evaluate", *arguments, "evaluation.max_length=4")
    assert json.loads((parser_run / "run/analyses/parsing-my.json").read_text())["malformed"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="file systems elsewhere have no such names")
def test_a_file_of_trees_may_have_any_name(parser_run, tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.trees")
    path.write_text(TREES)
    run("evaluate", parser_run / "run", "--suite", "trees", "--file", path, "--json", "evaluation.max_length=4")
    kept = parser_run / r"run/analyses/parsing-caf\udce9.json"
    assert json.loads(kept.read_text())["name"] == r"caf\udce9"
    kept.unlink()


@pytest.mark.parametrize(
    ("file", "name"),
    [("g.trees.valid", "g.trees.valid"), ("g.trees.test", "g.trees.test"), ("g.trees.gz", "g"), ("g.trees", "g")],
)
def test_analyses_of_different_files_have_different_names(tmp_path, file, name):
    scores = TreeScores(*[bracketing_scores([[Bracket("S", 0, 2)]], [[Bracket("S", 0, 2)]])] * 2)
    loaded = Mock(run_dir=tmp_path, update=1, prepared=Mock(digest="0"))
    (tmp_path / file).touch()
    path = write_parsing(loaded, tmp_path / file, ParsingScores(scores, 0.0, scores, scores))
    assert path.name == f"parsing-{name}.json"


def test_a_file_without_brackets_to_score_is_refused_before_parsing(tmp_path):
    path = tmp_path / "flat.trees"
    path.write_text("(ROOT (NN dog) (. .))\n(S (. .))\n")
    with pytest.raises(DataError, match=r"flat\.trees: has no brackets to score: only roots and punctuation"):
        parsing_scores(Mock(side_effect=AssertionError), path)


def test_messages_name_the_line_in_which_a_tree_begins(parser_run, tmp_path, caplog):
    path, loaded = tmp_path / "two.trees", load(parser_run / "run")
    path.write_text("(ROOT (S (NP (DT the)\n(NN cat))\n(VP (VBD sat))))\n\n(ROOT (S (NN ewe) (VBD ran)))\n")
    parsing_scores(make_parser(loaded), path)
    assert (
        "two.trees: 1 of 5 tokens are not in the vocabulary and are read as <unk>, the first in line 5" in caplog.text
    )
    path.write_text(path.read_text().replace("ewe", "<bos>"))
    with pytest.raises(DataError, match=r"two\.trees:5: .* the word <bos> is the name of a control symbol"):
        parsing_scores(make_parser(loaded), path)


def test_sentences_from_standard_input_become_trees(parser_run):
    found = run("predict", parser_run / "run", "evaluation.beam_size=1", input="the cat sat .\n\ndog ( ran\n").split(
        "\n"
    )
    assert [word in found[0] for word in ("(XX the)", "(XX cat)", "(XX sat)", "(XX .)")] == [True] * 4
    assert found[1] == ""
    assert [word in found[2] for word in ("(XX dog)", "(XX -LRB-)", "(XX ran)")] == [True] * 3


def test_words_of_a_line():
    assert treebank_words(" a\t( b(c )") == ["a", "-LRB-", "b-LRB-c", "-RRB-"]


def test_what_is_no_parser_is_refused(translation_run):
    with pytest.raises(UsageError, match="was not trained on trees"):
        make_parser(translation_run())


def test_malformed_files_are_refused(tmp_path):
    (tmp_path / "bad").write_text("(S (NN a))\n(S (NN a\n")
    result = invoke(
        "prepare", "trees", "--train", f"{tmp_path}/bad", "--valid", f"{tmp_path}/bad", "-o", f"{tmp_path}/out"
    )
    assert result.exit_code == DataError.exit_code
    assert not (tmp_path / "out").exists()
