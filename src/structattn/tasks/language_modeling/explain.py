"""What a language model does on single texts: batches of size 1, attention weights and surprisal."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float

from structattn.settings.training import StreamBatches
from structattn.support.special_tokens import BOS, EOS
from structattn.tasks.loaded import ExplainedLayer, LoadedRun, require_positions
from structattn.tasks.losses import model_inputs, token_losses
from structattn.tasks.streams import TEXTS
from structattn.text.batching.sequences import Batch, make_batch, make_stream_batch
from structattn.text.lines import ids_of_lines, is_stream


@dataclass(frozen=True)
class TextExplainer:
    """Explains a model of sequences; see ``Explainer``.

    Args:
        run: with its model in evaluation mode.
    """

    run: LoadedRun
    has_targets: ClassVar[bool] = False

    def text(self, text: str, target: str | None, number: int) -> Batch:
        """Return a text with inputs ``<bos> text``, or ``<eos> line 1 <eos> line 2 ...`` in a stream."""
        settings = self.run.settings
        lines = ids_of_lines(self.run.prepared.tokenizer, settings, text, TEXTS, number)
        ids = [token for line in lines for token in (EOS if is_stream(settings) else BOS, *line)]
        return self.batch(ids, [*ids[1:], EOS], number)

    def batch(self, ids: list[int], targets: list[int], number: int) -> Batch:
        """Return the inputs and targets of a text as a batch."""
        require_positions(self.run, len(ids), number)
        return Batch(torch.tensor([ids]), torch.tensor([targets]), torch.tensor([len(ids)]), (number - 1,))

    def example(self, split: str, index: int) -> Batch:
        """Return a sequence of a split, or a window of a stream."""
        sequences, batches = self.run.prepared.split(split), self.run.settings.training.batches
        if isinstance(batches, StreamBatches):
            return make_stream_batch(sequences, [index], batches.sequence_length)
        return make_batch(sequences, [index])

    @torch.no_grad()
    def layers(self, batch: Batch) -> list[ExplainedLayer]:
        """Return the explanations of all layers."""
        model: Any = self.run.model
        symbols = self.run.prepared.vocabulary.symbols
        tokens = tuple(symbols[token] for token in batch.inputs[0].tolist())
        return [ExplainedLayer(each, tokens) for each in model.explain(batch.inputs.to(device_of(model)))]

    @torch.no_grad()
    def surprisal(self, batch: Batch) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, " time"]]:
        """Return the targets and -log p of each, given the tokens up to its position."""
        inputs, lengths, classes = model_inputs(self.run.model, batch)
        losses = token_losses(self.run.model(inputs, lengths=lengths), classes)[0].double().cpu().numpy()
        return batch.targets[0].numpy(), losses


def device_of(model: torch.nn.Module) -> torch.device:
    """Return the device of the parameters."""
    return next(model.parameters()).device
