"""What a masked language model does on single texts."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from structattn.settings.model import reads_bos
from structattn.support.special_tokens import BOS, EOS, PAD
from structattn.tasks.language_modeling.explain import TextExplainer
from structattn.tasks.masked.batches import masked_examples
from structattn.tasks.masked.scores import pseudo_log_likelihoods
from structattn.tasks.streams import TEXTS
from structattn.text.batching.sequences import Batch
from structattn.text.lines import ids_of_lines

_ROWS = 64  # masked copies of a text in one pass


@dataclass(frozen=True)
class MaskedExplainer(TextExplainer):
    """Explains a masked language model on texts without masks; see ``Explainer``."""

    def text(self, text: str, target: str | None, number: int) -> Batch:
        """Return ``<bos> line 1 <eos> line 2 <eos> ...``, without ``<bos>`` if so trained; nothing is predicted."""
        settings = self.run.settings
        lines = ids_of_lines(self.run.prepared.tokenizer, settings, text, TEXTS, number)
        ids = [BOS] * reads_bos(settings.model) + [token for line in lines for token in (*line, EOS)]
        return self.batch(ids, [PAD] * len(ids), number)

    def example(self, split: str, index: int) -> Batch:
        """Return an example of a split without masks."""
        return masked_examples(self.run.prepared, split, self.run.settings, 0).uncorrupted(np.array([index]))

    def surprisal(self, batch: Batch) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, " time"]]:
        """Return the tokens but ``<bos>`` and ``<eos>``, and -log p of each given all others.

        Cost: as many forward passes of the text as it has tokens.
        """
        bos = reads_bos(self.run.settings.model)
        tokens = batch.inputs[0].numpy()
        targets = np.where(tokens == EOS, PAD, tokens)
        targets[: int(bos)] = PAD
        losses = np.full(len(targets), np.nan)
        mask = self.run.prepared.vocabulary.size
        losses[targets != PAD] = -pseudo_log_likelihoods(self.run.model, tokens[int(bos) :], mask, bos, _ROWS)
        return targets, losses
