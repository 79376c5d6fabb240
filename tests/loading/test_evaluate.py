"""Cross-entropies and lower bounds of a model with known probabilities."""

import math

import numpy as np
import pytest
import torch

from structattn.loading.description import describe_data, describe_model
from structattn.settings.transformer import EncoderDecoderSettings, LanguageModelSettings, MaskedLanguageModelSettings
from structattn.support.special_tokens import BOS, EOS
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.language_modeling.evaluate import (
    longer_than,
    make_split_scores,
    make_text_scores,
    sequence_negative_log_likelihoods,
    window_negative_log_likelihoods,
)
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.scores import scores_to_json
from structattn.text.folders.prepared import open_prepared
from structattn.text.folders.writing import write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary

SYMBOLS = 3  # besides the control symbols


class Bigrams(torch.nn.Module):
    """p(next | this token) from a table; class c is id c + 2. Padding is NaN, so that it must be ignored."""

    def __init__(self, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.nn.Parameter(torch.randn(SYMBOLS + 3, SYMBOLS + 1, generator=generator))
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, tokens, lengths=None):
        logits = self.dropout(self.table[tokens])
        return torch.where((tokens == 0)[..., None], torch.nan, logits)

    def nats(self, inputs, targets):
        probabilities = self.table.detach().double().log_softmax(-1)
        return -sum(float(probabilities[i, t - 2]) for i, t in zip(inputs, targets, strict=True))


@pytest.fixture
def prepared(tmp_path):
    """Text with lines of many lengths, including an empty line."""
    generator = np.random.Generator(np.random.Philox(3))
    lines = [generator.integers(3, 3 + SYMBOLS, size=n) for n in (4, 1, 7, 0, 4, 12, 7, 7, 2)]

    def make(kind="sentences"):
        write_prepared(tmp_path / kind, kind=kind, vocabulary=Vocabulary.from_symbols("abc"),
                       tokenizer={"level": "character"}, splits={"test": lines})  # fmt: skip
        return open_prepared(tmp_path / kind)

    return make


def test_losses_equal_those_of_the_model(prepared):
    sequences, model = prepared().split("test"), Bigrams()
    nats = sequence_negative_log_likelihoods(model, sequences, batch_tokens=16, what="")
    expected = [model.nats([BOS, *row], [*row, EOS]) for row in sequences]
    np.testing.assert_allclose(nats, expected, rtol=1e-6)
    assert model.training, "the model's mode is given back"


@pytest.mark.parametrize("batch_tokens", [1, 5, 30, 1000])
def test_the_batch_size_changes_nothing(prepared, batch_tokens):
    sequences, model = prepared().split("test"), Bigrams()
    nats = sequence_negative_log_likelihoods(model, sequences, batch_tokens, what="")
    np.testing.assert_array_equal(nats, sequence_negative_log_likelihoods(model, sequences, 17, what=""))


@pytest.mark.parametrize(("length", "batch_tokens"), [(1, 1), (5, 5), (5, 100), (1000, 1)])
def test_a_stream_counts_every_symbol_once(prepared, length, batch_tokens):
    sequences, model = prepared("stream").split("test"), Bigrams()
    nats = window_negative_log_likelihoods(model, sequences, length, batch_tokens, what="")
    stream = sequences.stream(0, sequences.num_targets + 1).tolist()
    assert nats.sum() == pytest.approx(model.nats(stream[:-1], stream[1:]), rel=1e-6)
    assert len(nats) == math.ceil(sequences.num_targets / length)


def test_scores_are_means_over_symbols(prepared):
    data = prepared()
    nats = np.arange(1.0, 10.0)
    scores = make_split_scores(data, "test", nats)
    assert (scores.num_sequences, scores.num_tokens) == (9, 44 + 9)
    assert scores.cross_entropy == pytest.approx(45 / 53)
    assert scores.perplexity == pytest.approx(math.exp(45 / 53))
    assert scores.lower_bound is None
    rows = {row.length: row for row in scores.by_length}
    assert list(rows) == [0, 1, 2, 4, 7, 12]
    assert rows[7].num_sequences == 3
    assert rows[7].cross_entropy == pytest.approx((3 + 7 + 8) / (3 * 8))
    total = sum(row.cross_entropy * row.num_sequences * (row.length + 1) for row in scores.by_length)
    assert total / scores.num_tokens == pytest.approx(scores.cross_entropy)


def test_a_stream_has_no_lengths(prepared):
    assert make_split_scores(prepared("stream"), "test", np.ones(3)).by_length == ()


def test_scores_per_word_and_character_do_not_depend_on_the_tokens(tmp_path, caplog):
    """The same probability of the same text gives the same scores, whatever the tokens."""
    text = "größer als\n" * 3 + "a\n"
    (tmp_path / "text").write_text(text)
    nats, found = 40.0, {}
    for level in ("word", "character", "byte"):
        settings = TextSettings(level, "stream", min_count=2 - (level == "byte"))
        prepare_language_modeling(tmp_path / level, *[tmp_path / "text"] * 2, settings=settings)
        opened = open_prepared(tmp_path / level)
        found[level] = make_text_scores(opened, "valid", nats / opened.split("valid").num_targets)
    for scores in found.values():
        assert scores.bits_per_character == pytest.approx(nats / math.log(2) / len(text))
        assert scores.bits_per_byte == pytest.approx(nats / math.log(2) / len(text.encode()))
    per_word = math.exp(nats / (7 + 4))  # seven words and the ends of four lines
    assert found["byte"].perplexity_per_word == pytest.approx(per_word)
    assert found["character"].perplexity_per_word == pytest.approx(per_word)
    assert found["word"].perplexity_per_word is None
    assert (found["word"].unknown_share, found["byte"].unknown_share) == (1 / 7, 0)
    assert "14.3 % of the tokens of valid are <unk>" in caplog.text


def test_folders_without_the_size_of_their_text_stay_readable(prepared):
    assert make_text_scores(prepared(), "test", 1.0) is None


@pytest.fixture
def language(tmp_path):
    sizes = FormalLanguageSizes(20, 30, 4, train_lengths=(3, 9), test_lengths=(3, 13))
    prepare_formal_language(tmp_path / "language", "marked-reversal", seed=2, sizes=sizes)
    return open_prepared(tmp_path / "language")


def test_bounds_of_marked_reversal_have_their_closed_form(language):
    """A string of length 2k + 1 is one of 2^k: -log p = k log 2. Aggregates add log N per string, curves do not."""
    for split, number in (("valid", 4), ("test", 6)):
        sequences = language.split(split)
        true_nats = np.array([(n - 1) / 2 * math.log(2) + math.log(number) for n in sequences.lengths])
        scores = make_split_scores(language, split, true_nats)
        assert scores.lower_bound == pytest.approx(true_nats.sum() / (sequences.lengths + 1).sum())
        assert scores.cross_entropy_difference == pytest.approx(0, abs=1e-12)
        assert scores.lower_bound_num_lengths == number
        for row in scores.by_length:
            assert row.lower_bound_num_lengths == 1
            assert row.lower_bound == pytest.approx((row.length - 1) / 2 * math.log(2) / (row.length + 1))
            assert row.cross_entropy_difference == pytest.approx(math.log(number) / (row.length + 1))


def test_longer_strings_are_scored_alone(language, prepared):
    lengths, nats = language.split("test").lengths, np.arange(1.0, 25.0)
    longer = longer_than(make_split_scores(language, "test", nats), 9)
    chosen = lengths > 9
    bound = ((lengths[chosen] - 1) / 2 * math.log(2)).sum() / (lengths[chosen] + 1).sum()
    assert (longer.num_sequences, longer.num_tokens) == (8, (lengths[chosen] + 1).sum())
    assert longer.cross_entropy == pytest.approx(nats[chosen].sum() / longer.num_tokens)
    assert longer.lower_bound == pytest.approx(bound)
    assert longer.cross_entropy_difference == pytest.approx(longer.cross_entropy - bound)
    assert (longer.split, longer.lower_bound_num_lengths) == ("test, longer than 9", 1)
    without = longer_than(make_split_scores(prepared(), "test", np.arange(1.0, 10.0)), 6)
    assert without.cross_entropy == pytest.approx((3 + 7 + 8 + 6) / (3 * 8 + 13))
    assert (without.lower_bound, without.lower_bound_num_lengths) == (None, None)
    with pytest.raises(ValueError, match="test has no sequence of more than 13 tokens"):
        longer_than(make_split_scores(language, "test", nats), 13)


def test_a_split_without_probabilities_has_no_bound(language):
    assert make_split_scores(language, "train", np.ones(20)).lower_bound is None


def test_scores_round_trip_through_json_including_infinities(language):
    scores = make_split_scores(language, "valid", np.full(30, 1e6))
    content = scores_to_json(scores, update=3)
    assert content["perplexity"] is None
    assert content["update"] == 3
    assert content["by_length"][0].keys() == {
        "length", "num_sequences", "cross_entropy", "lower_bound", "cross_entropy_difference", "accuracy",
        "accuracy_greedy", "lower_bound_num_lengths",
    }  # fmt: skip


def test_descriptions_of_data_and_models(language, prepared):
    assert describe_data(language) == {
        "kind": "formal_language", "name": "language", "language": "marked-reversal", "variant": "faithful",
        "train_lengths": [3, 9], "train_number_of_lengths": 4,
    }  # fmt: skip
    assert describe_data(prepared()) == {"kind": "sentences", "name": "sentences"}
    settings = LanguageModelSettings(layers="2.nondeterministic-2-3-5.1.superposition-10.softmax-8")
    words = "d 32: 2 softmax, nondeterministic 2-3-5, softmax, superposition 10, softmax-8"
    assert describe_model(settings) == words


def test_descriptions_of_other_models():
    layers = [{"attention": "gaussian", "offsets": [-1, 0.5], "feedforward": False}, {"stack": "stack_pointer"},
              {"stack": {"attention": "stack_pointer", "bottom": "learned"}}]  # fmt: skip
    masked = MaskedLanguageModelSettings(kind="masked", layers=layers)
    words = "d 32, masked: gaussian (-1, 0.5) without feed-forward, softmax + stack pointer, "
    words += "softmax + stack pointer with a learned bottom"
    assert describe_model(masked) == words
    translator = EncoderDecoderSettings(
        kind="encoder_decoder", encoder={"layers": 2}, decoder={"layers": "3xhard-2", "cross_attention": "2xnone.1"}
    )
    words = "d 32: encoder 2 softmax; decoder 3 hard-2; across 2 no attention, softmax"
    assert describe_model(translator) == words
