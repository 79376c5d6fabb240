"""The tree of hypotheses of a beam search: all that were in the beam after some step, and which one each extends."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from structattn.decoding.batches import MaxLengths
from structattn.decoding.beam_presets import BeamSearch, LengthPenalty, length_penalized
from structattn.decoding.beam_search import Forbid, Hypotheses, beam_search
from structattn.decoding.stepper import DecodingStart, Hypothesis, Stepper


@dataclass(frozen=True)
class TreeNode:
    """A hypothesis that was kept after a step.

    Args:
        token: its last id; of the root, the token that the model was given first.
        parent: the index of the hypothesis that it extends; -1 for the root.
        step: the number of its tokens, <eos> included.
        log_probability: of all its tokens, in nats.
        score: the log-probability under the length penalty by which results are ranked.
        finished: whether the token is <eos>.
    """

    token: int
    parent: int
    step: int
    log_probability: float
    score: float
    finished: bool


@dataclass(frozen=True)
class BeamTree:
    """The hypotheses that a beam search for one sentence kept.

    Args:
        nodes: the root, and those of each step: unfinished hypotheses by descending log-probability, then those that
            finished among the ``beam_size`` best. Better ones may have displaced a finished one since.
    """

    nodes: tuple[TreeNode, ...]

    def index(self, tokens: Sequence[int]) -> int:
        """Return the index of the node of a hypothesis, given its ids after the first.

        Raises:
            KeyError: the tree does not have it.
        """
        children = {(each.parent, each.token): index for index, each in enumerate(self.nodes)}
        node = 0
        for token in tokens:
            node = children[node, token]
        return node

    def path(self, index: int) -> tuple[int, ...]:
        """Return the ids of a hypothesis after the first."""
        tokens = list[int]()
        while self.nodes[index].parent >= 0:
            tokens.append(self.nodes[index].token)
            index = self.nodes[index].parent
        return tuple(reversed(tokens))


def beam_search_tree(
    model: Stepper,
    start: DecodingStart,
    max_lengths: MaxLengths,
    search: BeamSearch | None = None,
    n_best: int = 1,
    prefixes: Sequence[Sequence[int]] | None = None,
    forbid: Forbid | None = None,
) -> tuple[list[Hypothesis], BeamTree]:
    """Return what ``beam_search`` returns for one sentence, and the tree of its hypotheses.

    Arguments and errors are those of ``beam_search``; <eos> of a result of the search is a leaf of the tree, and the
    log-probability of a node is the sum of those of the tokens on its path.

    Raises:
        ValueError: there is more than one sentence.
    """
    if len(start.tokens) != 1:
        raise ValueError(f"{len(start.tokens)} sentences; expected one")
    search = BeamSearch() if search is None else search
    tree = _GrowingTree(int(start.tokens), search.ranking_penalty)
    (hypotheses,) = beam_search(model, start, max_lengths, search, n_best, prefixes, tree.grow, forbid)
    return hypotheses, BeamTree(tuple(tree.nodes))


class _GrowingTree:
    """The nodes so far, and those of the hypotheses in the beam."""

    def __init__(self, first: int, penalty: LengthPenalty) -> None:
        self.nodes, self.penalty, self.beam = [TreeNode(first, -1, 0, 0.0, 0.0, False)], penalty, [0]

    def grow(self, beam: Hypotheses, finished: Hypotheses) -> None:
        """Append the hypotheses that were kept in a step."""
        first = len(self.nodes)
        unfinished = self._nodes(beam)
        self.nodes += unfinished + self._nodes(finished)
        self.beam = list(range(first, first + len(unfinished)))

    def _nodes(self, kept: Hypotheses) -> list[TreeNode]:
        step = kept.tokens.shape[2] - 1
        scores = length_penalized(self.penalty, kept.log_probs, step)
        columns = (kept.tokens[..., -1], kept.parents, kept.log_probs, scores, kept.finished)
        rows = zip(*(column[0].tolist() for column in columns), strict=True)
        return [
            TreeNode(token, self.beam[parent], step, log_prob, score, finished)
            for token, parent, log_prob, score, finished in rows
            if log_prob > -math.inf
        ]
