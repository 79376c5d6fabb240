"""Losses and scores of next-token prediction."""

import numpy as np
import pytest
import torch

from structattn.settings.training import SequenceBatches
from structattn.tasks.language_modeling.batches import Examples
from structattn.tasks.language_modeling.evaluate import score_batches
from structattn.tasks.language_modeling.task import next_token_task
from structattn.tasks.losses import Criterion
from structattn.tasks.task import perplexity
from structattn.text.batching.sequences import make_batch
from structattn.text.folders.sequences import Sequences

STRINGS = [[3, 5, 3], [4], [], [4, 4, 5, 4, 4]]


@pytest.fixture
def batch():
    return make_batch([np.array(string, dtype=np.int32) for string in STRINGS], range(4))


def test_cross_entropy_equals_the_sum_by_hand(table_model, batch):
    expected = [table_model.nats(string) for string in STRINGS]
    assert Criterion()(table_model, batch).item() == pytest.approx(sum(expected), rel=1e-6)


def test_padding_has_no_gradient(table_model, batch):
    Criterion()(table_model, batch).backward()
    assert not table_model.table.grad[0].any()
    assert table_model.table.grad[1].any()


def test_loss_denominators(batch):
    examples = Examples(Sequences(np.zeros(0, np.int32), np.zeros(1, np.int64)), SequenceBatches())
    by_token, by_sequence = (next_token_task(examples, examples, loss) for loss in ("token_mean", "sequence_sum"))
    assert by_token.num_tokens(batch) == by_sequence.num_tokens(batch) == 4 + 2 + 1 + 6
    assert by_token.loss_denominator(batch) == 13
    assert by_sequence.loss_denominator(batch) == 4


def test_the_model_gets_lengths_only_if_a_row_is_padded(table_model, batch):
    Criterion()(table_model, batch)
    Criterion()(table_model, make_batch([np.array([3, 4]), np.array([5, 5])], [0, 1]))
    padded, whole = table_model.lengths
    assert torch.equal(padded, batch.lengths)
    assert whole is None


def test_scores_do_not_depend_on_how_strings_are_batched(table_model, batch):
    strings = [np.array(string, dtype=np.int32) for string in STRINGS]
    whole = score_batches(table_model, [batch], lambda: None)
    parts = score_batches(table_model, [make_batch(strings, [index]) for index in (2, 0, 3, 1)], lambda: None)
    assert (whole.num_sequences, whole.num_tokens) == (parts.num_sequences, parts.num_tokens) == (4, 13)
    assert whole.cross_entropy == pytest.approx(parts.cross_entropy, rel=1e-6)
    assert whole.perplexity == pytest.approx(np.exp(whole.cross_entropy))


def test_scoring_can_be_aborted_between_batches(table_model, batch):
    seen = []

    def stop():
        seen.append(table_model.training)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_batches(table_model, [batch] * 5, stop)
    assert seen == [False, False]
    assert table_model.training


def test_perplexity_overflows_to_infinity():
    assert perplexity(709.0) > 1e300
    assert perplexity(800.0) == np.inf
    assert np.isnan(perplexity(np.nan))
