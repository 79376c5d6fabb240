"""The loss of recognition: that of the label, and auxiliary ones of members (Butoi et al. 2025)."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.models.looped import PaddedLayers
from structattn.models.recognition import RecognitionHeads, RecognitionLogits
from structattn.settings.training import Recognition
from structattn.support.shapes import Float
from structattn.support.special_tokens import PADDING_CLASS
from structattn.tasks.losses import model_inputs, to_float32
from structattn.tasks.recognition.batches import RecognitionBatch


@dataclass(frozen=True)
class RecognitionCriterion:
    """The sum of the losses of a batch.

        L = -log p(label) + [member] (c_lm L_lm + c_ns L_ns)

    where p(member) = σ(logit after the last symbol), L_lm = mean over t = 0..n of -log softmax(o_t)[w_{t+1}], w_{n+1} =
    <eos>, and L_ns = mean over t and over symbols a, <eos> included, of the binary cross-entropy of σ(z_{t,a}) and
    whether a may follow w_1..t. Divided by the number of strings, the auxiliary losses are means over all of them, not
    over the members alone.

    Args:
        weights: c_lm and c_ns.
    """

    weights: Recognition

    def __call__(self, model: torch.nn.Module, batch: RecognitionBatch) -> Float[Tensor, ""]:
        """Return the sum of losses of a batch."""
        inputs, lengths, classes = model_inputs(model, batch)
        logits = recognition_logits(model, inputs, lengths)
        sizes, members = batch.lengths.to(inputs.device), batch.labels.to(inputs.device)
        loss = label_losses(logits, sizes, members).sum()
        if logits.language_modeling is not None:
            of_members = member_losses(logits.language_modeling, classes)
            loss = loss + self.weights.language_modeling * (of_members / sizes).sum()
        if logits.next_symbols is not None and batch.next_symbols is not None:
            allowed, rows = batch.next_symbols.to(inputs.device), to_float32(logits.next_symbols)
            of_symbols = F.binary_cross_entropy_with_logits(rows, allowed.to(rows.dtype), reduction="none").mean(-1)
            counts = (classes != PADDING_CLASS).to(rows.dtype)
            loss = loss + self.weights.next_symbols * ((of_symbols * counts).sum(1) / sizes).sum()
        return loss


def recognition_logits(model: torch.nn.Module, inputs: Tensor, lengths: Tensor | None) -> RecognitionLogits:
    """Return the outputs of a model after each prefix."""
    heads = model.output
    assert isinstance(heads, RecognitionHeads)
    logits, layers, time = heads.split(model(inputs, lengths=lengths)), getattr(model, "layers", None), inputs.shape[1]
    if not isinstance(layers, PaddedLayers):
        return logits
    sizes = torch.full_like(inputs[:, 0], time) if lengths is None else lengths
    at_symbols = (None if each is None else each[:, :time] for each in logits[1:])
    return RecognitionLogits(layers.at_the_end(logits.label, sizes, time), *at_symbols)


def label_logits(logits: RecognitionLogits, sizes: Tensor) -> Float[Tensor, " batch"]:
    """Return the logit of each string, after its last symbol; ``sizes`` are numbers of positions, <bos> included."""
    return to_float32(logits.label).gather(1, (sizes - 1)[:, None])[:, 0]


def label_losses(logits: RecognitionLogits, sizes: Tensor, members: Tensor) -> Float[Tensor, " batch"]:
    """Return -log p(label) of each string, in float32 or better."""
    of_strings = label_logits(logits, sizes)
    return F.binary_cross_entropy_with_logits(of_strings, members.to(of_strings.dtype), reduction="none")


def member_losses(language_modeling: Tensor, classes: Tensor) -> Float[Tensor, " batch"]:
    """Return -log p(w <eos>) of each member w, in float32 or better; 0 for negatives, which have no targets."""
    rows = to_float32(language_modeling)
    return F.cross_entropy(rows.mT, classes, ignore_index=PADDING_CLASS, reduction="none").sum(1)
