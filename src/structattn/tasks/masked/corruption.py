"""Corruption of the inputs of masked language models."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from structattn.settings.training import Masking
from structattn.support.seeds import numpy_generator
from structattn.support.special_tokens import EOS, FIRST_SYMBOL, PAD

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
