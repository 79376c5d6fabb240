"""Narrow beams against a plain implementation of beam search for one sentence."""

import itertools

import pytest
import torch

from structattn.decoding import (
    BeamSearch,
    GNMTPenalty,
    PerTokenPenalty,
    PowerPenalty,
    beam_search,
    beam_search_tree,
    dusell_chiang_2024,
    fairseq,
    pad_sequences,
    score_pairs,
    start_translation,
    vaswani_2017,
    you_2020,
)

SEARCHES = [
    BeamSearch(2),
    BeamSearch(3, PerTokenPenalty()),
    BeamSearch(3, GNMTPenalty(), finishing="in_beam"),
    BeamSearch(4, PowerPenalty(0.5), stopping="best_finished"),
    BeamSearch(2, PerTokenPenalty(), finishing="in_beam", stopping="all_finished"),
    dusell_chiang_2024(3),
    you_2020(4),
    fairseq(3),
    BeamSearch(3, finishing="in_beam", min_length=2, force_eos=True),
    vaswani_2017(3),
]


def score(search, text, penalty=None):
    """Return the score of (log p, tokens)."""
    length = torch.tensor(float(max(1, len(text[1]))), dtype=torch.float64)
    return text[0] / (penalty or search.length_penalty).divisor(length).item()


def may_follow(search, num_before, limit, token):
    """Whether a token may follow so many others."""
    if num_before + 1 == limit:
        return token == 2 or not search.force_eos
    return token != 2 or num_before >= search.min_length


def plain_search(model, source, limit, search, n_best, kept=None):
    """Return the n best (log p, tokens); append all that are in the beam or finish, step by step, to ``kept``."""

    def best(texts, penalty=None):
        return sorted(texts, key=lambda text: -score(search, text, penalty))

    def continued(text):
        logits = model(torch.tensor([source]), torch.tensor([[1, *text[1]]]))[0, -1]
        after = [(text[0] + x, (*text[1], c + 2)) for c, x in enumerate(logits.log_softmax(-1).tolist())]
        return [longer for longer in after if may_follow(search, len(text[1]), limit, longer[1][-1])]

    def is_done(going_on, finished):
        if search.stopping == "all_finished":
            return len(finished) == search.beam_size
        if search.stopping == "best_finished":
            return bool(finished) and score(search, finished[0]) >= score(search, going_on[0])
        wanted = search.beam_size if search.final_penalty else n_best
        bound = going_on[0][0] / search.length_penalty.divisor(torch.tensor(float(limit), dtype=torch.float64)).item()
        return len(finished) >= wanted and score(search, finished[wanted - 1]) >= bound

    going_on, finished = [(0.0, ())], []
    for _ in range(limit):
        if not going_on or is_done(going_on, finished):
            break
        found = best(itertools.chain.from_iterable(map(continued, going_on)))
        if search.finishing == "in_beam":
            beam = best(finished + found[: search.beam_size])[: search.beam_size]
            finished = [text for text in beam if text[1][-1] == 2]
            ended = [text for text in finished if text in found]
            going_on = [text for text in beam if text[1][-1] != 2]
        else:
            ended = [text for text in found[: search.beam_size] if text[1][-1] == 2]
            finished = best(finished + ended)[: search.beam_size]
            going_on = [text for text in found if text[1][-1] != 2][: search.beam_size]
        if kept is not None:
            kept += going_on + ended
    return (best(finished, search.final_penalty) + best(going_on, search.final_penalty))[:n_best]


@pytest.mark.covering(1)
@torch.no_grad()
@pytest.mark.parametrize(
    "search", SEARCHES, ids=lambda search: f"{search.finishing}-{search.stopping}-{search.length_penalty}"
)
@pytest.mark.parametrize("mechanism", ["softmax", "superposition"])
def test_narrow_beams_match_the_plain_implementation(translator, sources, mechanism, search):
    source = sources(2, seed=8)
    ids, lengths = pad_sequences(source)
    limits = [7, 5]
    for seed, n_best in ((0, 1), (1, search.beam_size), (3, 2)):
        model = translator(mechanism, 4, seed)
        results = beam_search(model, start_translation(model, ids, lengths), limits, search, n_best)
        for of_one, limit, hypotheses in zip(source, limits, results, strict=True):
            expected = plain_search(model, of_one, limit, search, n_best)
            assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for _, tokens in expected]
            found = [hypothesis.log_probability for hypothesis in hypotheses]
            assert found == pytest.approx([log_probability for log_probability, _ in expected], rel=1e-9)


@pytest.mark.covering(1)
@torch.no_grad()
@pytest.mark.parametrize(
    "search", SEARCHES, ids=lambda search: f"{search.finishing}-{search.stopping}-{search.length_penalty}"
)
@pytest.mark.parametrize("mechanism", ["softmax", "nondeterministic"])
def test_the_tree_has_what_the_plain_implementation_keeps(translator, sources, mechanism, search):
    model, limit = translator(mechanism, 4, 3), 6
    for source in sources(2, seed=8):
        ids = torch.tensor([source])
        start, n_best = start_translation(model, ids), min(2, search.beam_size)
        found, tree = beam_search_tree(model, start, limit, search, n_best)
        assert found == beam_search(model, start, limit, search, n_best)[0]
        kept = [(0.0, ())]
        plain_search(model, source, limit, search, n_best, kept)
        paths = [tree.path(index) for index in range(len(tree.nodes))]
        assert set(paths) == {tokens for _, tokens in kept}
        assert len(paths) == len(kept)
        scores = score_pairs(model, ids.expand(len(paths), -1), paths).log_probs
        assert [node.log_probability for node in tree.nodes] == pytest.approx(scores.tolist(), rel=1e-9)
        for index, (node, path) in enumerate(zip(tree.nodes, paths, strict=True)):
            assert (node.step, node.finished, tree.index(path)) == (len(path), path[-1:] == (2,), index)
            expected = score(search, (node.log_probability, path), search.final_penalty)
            assert node.score == pytest.approx(expected, rel=1e-9)
        for each in found:
            node = tree.nodes[tree.index(each.tokens)]
            assert (node.log_probability, node.score) == (each.log_probability, each.score)


def test_a_tree_is_that_of_one_sentence(translator, sources):
    model = translator("softmax")
    with pytest.raises(ValueError, match="2 sentences; expected one"):
        beam_search_tree(model, start_translation(model, *pad_sequences(sources(2))), 3)
