"""Batches of masked language models: what is corrupted, and what is predicted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from structattn.settings.run import RunSettings
from structattn.settings.training import Masking
from structattn.settings.transformer import reads_bos
from structattn.support.seeds import derived_seed, numpy_generator
from structattn.support.shapes import Int64
from structattn.support.special_tokens import BOS, EOS, FIRST_SYMBOL, PAD
from structattn.tasks.language_modeling.batches import Examples, split_examples, text_batches
from structattn.text.batching.sequences import Batch, Indices, pad
from structattn.text.folders.prepared import PreparedFolder

Tokens = Int64[np.ndarray, " time"]


@dataclass(frozen=True)
class Corruption:
    """Selects tokens to predict, and replaces them by the mask, by random symbols, or not at all.

    Each token but ``<eos>`` is selected with probability ``masking.share``, independently of the others. This is the
    rule of BERT (Devlin et al. 2019, section 3.1).

    Args:
        masking: probabilities of selection and of the replacements.
        vocabulary_size: the number of ids, special tokens included; it is also the id of the mask.
        seed: determines selections and replacements together with the number of an example.
    """

    masking: Masking
    vocabulary_size: int
    seed: int

    @property
    def mask(self) -> int:
        """The id of the mask."""
        return self.vocabulary_size

    def __call__(self, tokens: Tokens, number: int) -> tuple[Tokens, Tokens]:
        """Return the corrupted tokens, and the targets: the selected tokens, ``<pad>`` elsewhere.

        Args:
            tokens: ids of an example, without ``<bos>``.
            number: of the example, counted through all epochs.
        """
        generator = numpy_generator(self.seed, number)
        selected = (generator.random(len(tokens)) < self.masking.share) & (tokens != EOS)
        replacement = generator.random(len(tokens))
        symbols = generator.integers(FIRST_SYMBOL, self.vocabulary_size, len(tokens))
        masked = replacement < self.masking.masked
        replaced = masked | (replacement < self.masking.masked + self.masking.random)
        corrupted = np.where(masked, self.mask, symbols)
        return np.where(selected & replaced, corrupted, tokens), np.where(selected, tokens, PAD)


@dataclass(frozen=True)
class MaskedExamples:
    """The examples of one split, corrupted.

    The inputs of a sentence are ``<bos> w1 .. wn <eos>``, those of a window its tokens after ``<bos>``. Examples are
    numbered through all epochs: in epoch e, example i of n has the number e·n + i. A batch is therefore a function of
    its numbers, although the masks differ from epoch to epoch.

    Args:
        bos: whether inputs begin with ``<bos>``.
    """

    examples: Examples
    corruption: Corruption
    bos: bool = True

    def training_order(self, epoch: int) -> list[Indices]:
        """Return the shuffled batches of an epoch as numbers of examples, a pure function of (seed, epoch)."""
        return [batch + epoch * self.examples.num_examples for batch in self.examples.training_order(epoch)]

    def batch(self, numbers: Indices) -> Batch:
        """Return the examples with these numbers; targets are ``<pad>`` where nothing is predicted."""
        indices = numbers % self.examples.num_examples
        rows = zip(self.tokens(indices), numbers.tolist(), strict=True)
        return self._batch([self.corruption(*row) for row in rows], indices)

    def uncorrupted(self, indices: Indices) -> Batch:
        """Return examples without masks; nothing is predicted."""
        return self._batch([(tokens, np.full_like(tokens, PAD)) for tokens in self.tokens(indices)], indices)

    def tokens(self, indices: Indices) -> list[Tokens]:
        """Return the tokens of examples, with the ``<eos>`` at the ends of lines and without ``<bos>``."""
        batch = self.examples.batch(indices)
        rows = zip(batch.targets.numpy(), batch.lengths.tolist(), strict=True)
        return [row[:length] for row, length in rows]

    def _batch(self, rows: Sequence[tuple[Tokens, Tokens]], indices: Indices) -> Batch:
        first = np.full(int(self.bos), BOS)
        inputs, lengths = pad([np.concatenate((first, row)) for row, _ in rows])
        targets, _ = pad([np.concatenate((np.full_like(first, PAD), row)) for _, row in rows])
        return Batch(inputs, targets, lengths, tuple(indices.tolist()))


def masked_examples(prepared: PreparedFolder, split: str, settings: RunSettings, seed: int) -> MaskedExamples:
    """Return the examples of a split.

    Raises:
        DataError: the folder does not hold text, has no such split, or the split is empty.
        SettingsError: the batches do not suit the folder.
    """
    batches = text_batches(prepared, settings.training.batches, settings.task)
    corruption = Corruption(settings.training.masking, prepared.vocabulary.size, derived_seed(seed, "masks", split))
    return MaskedExamples(split_examples(prepared, split, batches, seed), corruption, reads_bos(settings.model))
