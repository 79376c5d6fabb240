"""Constituency parsing: bracketing F1 of a run on a file of trees, beside trees that branch to one side only."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from structattn.metrics.bracketing import Bracket, BracketingScores, bracketing_scores, unlabelled
from structattn.support.environment import name_of
from structattn.support.errors import DataError
from structattn.support.progress import progress
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.parsing.predict import Parser
from structattn.tasks.parsing.prepare import read_trees
from structattn.tasks.parsing.trees import Span, brackets_of, branching_brackets, leaves_of
from structattn.tasks.suite_analyses import write_suite_analysis
from structattn.text.reading import Notices


@dataclass(frozen=True)
class TreeScores:
    """Scores of predicted trees with and without labels, as evalb counts brackets; see ``brackets_of``.

    Without labels, each span counts once, however many brackets with different labels it has.
    """

    labelled: BracketingScores
    unlabelled: BracketingScores


@dataclass(frozen=True)
class ParsingScores:
    """Scores of a parser on a file of trees.

    Args:
        malformed: the fraction of outputs that had to be repaired; 0 with constrained parsing.
        right_branching: scores of trees (a (b (c d))), every label the most frequent one of the file.
        left_branching: the same for (((a b) c) d).
    """

    scores: TreeScores
    malformed: float
    right_branching: TreeScores
    left_branching: TreeScores


def parsing_scores(parser: Parser, path: Path) -> ParsingScores:
    """Parse the sentences of a file of trees, and compare the trees.

    Raises:
        DataError: the file is malformed or has nothing to score, or a sentence cannot be encoded; the message names the
            line in which its tree begins.
    """
    numbered = list(read_trees(path, Notices()))
    gold, numbers = [each.tree for each in numbered], [each.line for each in numbered]
    leaves = [list(leaves_of(tree)) for tree in gold]
    tags = [[leaf.tag for leaf in each] for each in leaves]
    truth = [brackets_of(tree, of_words) for tree, of_words in zip(gold, tags, strict=True)]
    labels = Counter(label for brackets in truth for label, *_ in brackets)
    if not labels:
        raise DataError(path, "has no brackets to score: only roots and punctuation")
    with progress("Parsing", len(gold), "sentences") as advance:
        parsed = parser([[leaf.word for leaf in each] for each in leaves], advance, numbers, path)
    trees = [each for each in parsed if each is not None]  # no sentence of a file of trees is empty
    guess = [brackets_of(each.tree, of_words) for each, of_words in zip(trees, tags, strict=True)]
    label = labels.most_common(1)[0][0]
    return ParsingScores(
        _tree_scores(truth, guess),
        sum(each.malformed for each in trees) / len(trees),
        _tree_scores(truth, [branching_brackets(of_words, "right", label) for of_words in tags]),
        _tree_scores(truth, [branching_brackets(of_words, "left", label) for of_words in tags]),
    )


def write_parsing(run: LoadedRun, path: Path, scores: ParsingScores) -> Path:
    """Write the scores to ``analyses/parsing-NAME.json`` of the run; NAME is the file's less .trees or .trees.gz."""
    name = re.sub(r"\.trees(\.gz)?$", "", name_of(path))
    return write_suite_analysis(run, f"parsing-{name}", "parsing", {"name": name, **asdict(scores)}, [path])


def _tree_scores(gold: Sequence[Sequence[Span]], predicted: Sequence[Sequence[Span]]) -> TreeScores:
    truth, guess = ([[Bracket(*span) for span in of_tree] for of_tree in trees] for trees in (gold, predicted))
    without = [unlabelled(each) for each in truth], [unlabelled(each) for each in guess]
    return TreeScores(bracketing_scores(truth, guess), bracketing_scores(*without))
