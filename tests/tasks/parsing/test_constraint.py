"""Constrained parsing: every output is a tree over the words, and the search is that of the trees alone."""

import functools
import itertools
import math
import random
from dataclasses import dataclass, replace

import pytest
import torch

from structattn.decoding import BeamSearch, DecodingStart, beam_search
from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError, UsageError
from structattn.tasks.model import build_model_for
from structattn.tasks.parsing.predict import TreeConstraint, make_parser, make_predictor
from structattn.tasks.parsing.prepare import prepare_trees
from structattn.tasks.parsing.trees import MAX_DEPTH, leaves_of, linearize, repair
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.tasks.translation.translators import make_pair_scorer
from structattn.text.folders.prepared import open_prepared
from structattn.text.tokenization.vocabulary import Vocabulary

TREES = """(S (NP (DT the) (NN cat)) (VP (VBD sat)) (. .))
(S (NP (DT a) (NN dog)) (VP (VBD saw) (NP (DT the) (NN cat))) (. .))
(S (NP (NN dog)) (VP (VBD ran)) (. .))
"""
SYMBOLS = ["(A", ")A", "(B", ")B", "XX", "(C", ")D"]  # C cannot be closed, D not opened
VOCABULARY = Vocabulary.from_symbols(SYMBOLS, unknown=True)
EOS, A, NOT_A, B, NOT_B, XX = 2, 4, 5, 6, 7, 8
DECODERS = {
    "softmax": {"layers": "1"},
    "superposition stack": {"layers": "superposition-3"},
    "nondeterministic stack": {"layers": "nondeterministic-1-2-3"},
    "hard-coded": {"layers": "gaussian", "cross_attention": "gaussian"},
}


@functools.cache
def trees_by_definition(num_words, max_length):
    """The ids, <eos> included, of all linearized trees of at most ``max_length`` tokens over this number of words."""
    words = ["w"] * num_words
    return [
        (*(VOCABULARY.id_of[each] for each in symbols), EOS)
        for length in range(max_length)
        for symbols in itertools.product(SYMBOLS[:5], repeat=length)
        if not repair(symbols, words, "normalized").malformed
    ]


@dataclass(frozen=True)
class Bigrams:
    """A model whose next token depends on the sentence, the step and the last token alone."""

    logits: torch.Tensor  # sentence, step, last token, class
    sentences: torch.Tensor
    steps: int = 0

    def select(self, indices):
        return replace(self, sentences=self.sentences[indices])

    def step(self, tokens, state):
        return self.logits[state.sentences, state.steps, tokens], replace(state, steps=state.steps + 1)


def bigrams(sentences, seed, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(sentences, 12, VOCABULARY.size, VOCABULARY.size - 2, generator=generator, dtype=torch.float64)
    return Bigrams(scale * logits, torch.arange(sentences))


def log_probability(model, sentence, tokens):
    log_probs = model.logits[sentence].log_softmax(-1)
    return sum(log_probs[step, last, token - 2].item() for step, (last, token) in enumerate(itertools.pairwise(tokens)))


def search(model, num_words, max_lengths, beam):
    lines = [" ".join("w" * count) for count in num_words]
    constraint, limits = TreeConstraint(VOCABULARY, "normalized"), torch.tensor(max_lengths)
    start = DecodingStart(model, torch.ones(len(lines), dtype=torch.int64))
    return beam_search(model, start, limits, beam, beam.beam_size, forbid=constraint.forbid(lines, limits))


@pytest.mark.parametrize(("num_words", "max_length"), [(1, 4), (1, 7), (2, 5), (2, 7), (3, 7)])
def test_what_may_follow_is_what_some_tree_goes_on_with(num_words, max_length):
    trees = trees_by_definition(num_words, max_length)
    line = " ".join("w" * num_words)
    constraint = TreeConstraint(VOCABULARY, "normalized")
    assert constraint.min_length(line) == min(map(len, trees))
    rule = constraint.forbid([line], torch.tensor([max_length]))
    beginnings = {tree[:length] for tree in trees for length in range(len(tree))}
    for beginning in beginnings:
        wanted = {tree[len(beginning)] for tree in trees if tree[: len(beginning)] == beginning}
        forbidden = rule(torch.tensor([[(1, *beginning)]]), torch.tensor([0]), VOCABULARY.size - 2)
        assert {n + 2 for n, each in enumerate(forbidden[0, 0].tolist()) if not each} == wanted, beginning


@pytest.mark.parametrize("seed", range(2))
def test_a_wide_beam_finds_the_most_probable_trees(seed):
    num_words, max_lengths = [1, 2, 2], [7, 5, 7]
    model = bigrams(3, seed)
    found = search(model, num_words, max_lengths, BeamSearch(200))
    for sentence, (count, limit) in enumerate(zip(num_words, max_lengths, strict=True)):
        trees = trees_by_definition(count, limit)
        wanted = sorted(((log_probability(model, sentence, (1, *each)), each) for each in trees), reverse=True)[:200]
        assert [each.tokens for each in found[sentence]] == [tokens for _, tokens in wanted]
        assert [each.log_probability for each in found[sentence]] == pytest.approx([log_p for log_p, _ in wanted])


@pytest.mark.parametrize("seed", range(2))
def test_greedy_search_takes_the_most_probable_token_that_leads_to_a_tree(seed):
    num_words, max_lengths = [3, 1, 2], [7, 6, 7]
    model = bigrams(3, seed)
    found = search(model, num_words, max_lengths, BeamSearch(1))
    for sentence, ((greedy,), count, limit) in enumerate(zip(found, num_words, max_lengths, strict=True)):
        tokens, trees = [1], trees_by_definition(count, limit)
        while trees != [tuple(tokens[1:])]:
            last, step = tokens[-1], len(tokens) - 1
            following = {tree[step] for tree in trees}
            tokens.append(max(following, key=lambda token: model.logits[sentence, step, last, token - 2].item()))
            trees = [tree for tree in trees if tree[: step + 1] == tuple(tokens[1:])]
        assert greedy.tokens == tuple(tokens[1:])
        assert greedy.log_probability == pytest.approx(log_probability(model, sentence, tokens))


def test_constituents_are_nested_at_most_as_deep_as_trees_may_be():
    class Opens:
        def step(self, tokens, state):
            return torch.nn.functional.one_hot(torch.tensor([A - 2]), VOCABULARY.size - 2) * 9.0, state

    model = Opens()
    ((found,),) = beam_search(
        model,
        DecodingStart(bigrams(1, 0), torch.tensor([1])),
        400,
        BeamSearch(1),
        forbid=TreeConstraint(VOCABULARY, "normalized").forbid(["w"], torch.tensor([400])),
    )
    assert found.text == (A,) * (MAX_DEPTH - 1) + (XX,) + (NOT_A,) * (MAX_DEPTH - 1)
    assert not repair(VOCABULARY.symbols_of(found.text), ["w"], "normalized").malformed


@pytest.mark.parametrize(
    ("symbols", "tags", "message"),
    [
        (["(A", ")B", "XX"], "normalized", "no label with both brackets"),
        (["(A", ")A", "NN"], "normalized", "no symbol for a word"),
        (["(A", ")A", "("], "kept", "no symbol for a word"),
    ],
)
def test_a_vocabulary_without_trees_is_refused(symbols, tags, message):
    with pytest.raises(UsageError, match=message):
        TreeConstraint(Vocabulary.from_symbols(symbols, unknown=True), tags)


@pytest.fixture(scope="module")
def parser_run(tmp_path_factory):
    """parser_run(decoder, tags, level, **evaluation) is a run with a model of drawn weights, far from any treebank."""
    folder = tmp_path_factory.mktemp("random")
    (folder / "my.trees").write_text(TREES)
    files = dict.fromkeys(("train", "valid"), folder / "my.trees")

    def make(decoder="softmax", tags="normalized", level="word", model=None, **evaluation):
        data = folder / f"{tags}-{level}"
        if not data.is_dir():
            prepare_trees(data, files, tags=tags, tokenizer=TokenizerSettings(level, joint=False))
        sizes = {"kind": "encoder_decoder", "d_model": 8, "num_heads": 2, "d_ff": 8, "encoder": {"layers": "1"}}
        tree = {
            "task": "translation",
            "data": str(data),
            "model": {**sizes, "decoder": DECODERS[decoder]} | (model or {}),
        }
        tree |= {"training": {"batches": {"kind": "pairs", "max_tokens": 100}}, "evaluation": evaluation}
        settings, prepared = resolve_settings(tree), open_prepared(data)
        torch.manual_seed(len(decoder))
        drawn = build_model_for(settings.model, prepared).eval()
        with torch.no_grad():
            drawn.output.weight.mul_(4)
        return TrainedRun(folder, settings, prepared, drawn, 0)

    return make


def sentences_of(count, seed=0):
    generator = random.Random(seed)
    words = ["the", "cat", "sat", ".", "a", "dog", "saw", "ran"]
    return [generator.choices(words, k=generator.randint(1, 8)) for _ in range(count)]


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("tags", ["normalized", "kept"])
@pytest.mark.quick("normalized-softmax", "kept-superposition stack")
def test_every_output_of_a_random_model_is_a_tree_over_the_words(parser_run, decoder, tags):
    run, sentences, generator = parser_run(decoder, tags), sentences_of(4), random.Random(decoder + tags)
    for search in ("fairseq", "gnmt", "vaswani-2017", "you-2020", "dusell-chiang-2024"):
        how = {"search": search, "beam_size": generator.choice([1, 2, 3, 7])}
        how |= {"max_length_ratio": generator.uniform(0, 2), "max_length_offset": generator.randrange(12)}
        how |= {"max_length": generator.choice([None, 1, 9])}
        parser = make_parser(run, run.settings.evaluation.changed(how))
        for words, parse in zip(sentences, parser(sentences), strict=True):
            longest = parser.translator.max_lengths(torch.tensor([len(words)])).item()
            symbols = linearize(parse.tree, tags)
            assert not parse.malformed
            assert [leaf.word for leaf in leaves_of(parse.tree)] == words
            assert len(symbols) + 1 <= max(longest, len(words) + 3)
            assert repair(symbols, words, tags).tree == parse.tree
            assert parse.tree == parser([words])[0].tree, "whatever else is in the batch"


def test_log_probabilities_are_those_of_the_model(parser_run):
    run, sentences = parser_run("superposition stack"), sentences_of(5)
    parses = make_parser(run)(sentences)
    pairs = [(" ".join(words), " ".join(linearize(parse.tree))) for words, parse in zip(sentences, parses, strict=True)]
    scores = make_pair_scorer([run]).score_texts(pairs)
    assert [each.log_probability for each in parses] == pytest.approx(
        [each.log_probability for each in scores], abs=1e-3
    )
    predicted = make_predictor(run)([" ".join(words) for words in sentences])
    assert [each.log_probability for each in predicted] == [each.log_probability for each in parses]


def test_the_tree_of_hypotheses_is_constrained_too(parser_run):
    run, (words,) = parser_run(), sentences_of(1, seed=3)
    parser = make_parser(run)
    searched = parser.translator.search_tree(" ".join(words))
    assert searched.translation.text.split(" ") == linearize(parser([words])[0].tree)
    vocabulary, constraint = run.prepared.sides.target.vocabulary, parser.translator.constraint
    rule = constraint.forbid([" ".join(words)], torch.tensor([len(words) + 50]))
    for index in range(1, len(searched.tree.nodes)):
        *before, last = searched.tree.path(index)
        forbidden = rule(torch.tensor([[[1, *before]]]), torch.tensor([0]), vocabulary.size - 2)
        assert not forbidden[0, 0, last - 2]


def test_without_the_constraint_outputs_are_repaired(parser_run):
    run, sentences = parser_run(constrained=False), sentences_of(8)
    parses = make_parser(run)(sentences)
    assert any(parse.malformed and parse.log_probability is None for parse in parses)
    assert [[leaf.word for leaf in leaves_of(parse.tree)] for parse in parses] == sentences
    (predicted, *_) = make_predictor(run)([" ".join(sentences[0])])
    assert (predicted.repaired, predicted.log_probability is None) == (parses[0].malformed, parses[0].malformed)


def test_symbols_that_are_no_tokens_cannot_be_constrained(parser_run):
    run = parser_run(level="character")
    assert make_parser(run).translator.constraint is None, "their outputs are repaired"
    with pytest.raises(UsageError, match=r"constrained=true needs data of level 'word'; .* is 'character'"):
        make_parser(run, run.settings.evaluation.changed({"constrained": True}))


def test_a_sentence_whose_flat_tree_is_too_long_for_the_model_is_refused(parser_run):
    learned = {"positions": {"kind": "learned", "max_positions": 12}}
    parser = make_parser(parser_run(model=learned))
    (longest,) = parser([["cat"] * 9])
    assert len(linearize(longest.tree)) == 11
    assert longest.tree.children[0].word == "cat"
    with pytest.raises(DataError, match=":2: its shortest output has 13 tokens with <eos>; the model has 12 positions"):
        parser([["cat"], ["cat"] * 10])


def test_log_probabilities_are_finite(parser_run):
    (parse,) = make_parser(parser_run())([["unheard-of"]])
    assert math.isfinite(parse.log_probability)
