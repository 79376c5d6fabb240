"""Predictions on a batch of pairs: target tokens, characters of unknown words, and receptive fields."""

from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.models import EncoderDecoder, SpelledEmbedding
from structattn.models.encoder_decoder import EncoderDecoderWeights
from structattn.operators import DecoderReceptiveFields, decoder_receptive_fields, receptive_field
from structattn.operators.receptive_field import Union
from structattn.support.devices import device_of
from structattn.support.errors import StructattnError
from structattn.support.shapes import Float, Float64, Int, Lengths
from structattn.support.special_tokens import class_of
from structattn.tasks.loaded import LoadedRun, cannot
from structattn.tasks.losses import cross_entropy_sum, token_losses
from structattn.text.batching.corruption import UnknownWords
from structattn.text.batching.pairs import PairBatch


@dataclass(frozen=True)
class Predictions:
    """Logits and target classes of a batch.

    Args:
        logits: logits of the target tokens, each given its source and the preceding target tokens.
        classes: classes of the target tokens; padding is ignored.
        character_logits: logits of the spelling of each target word that is <unk>; None if the model does not spell.
        character_classes: classes of those characters and of <eos> after the last.
        spelled_positions: row and position of each of these words.
    """

    logits: Float[Tensor, "batch time classes"]
    classes: Int[Tensor, "batch time"]
    character_logits: Float[Tensor, "words characters characterclasses"] | None = None
    character_classes: Int[Tensor, "words characters"] | None = None
    spelled_positions: Int[Tensor, "words 2"] | None = None

    def character_loss(self) -> Float[Tensor, ""]:
        """Return -log p of the spellings of <unk> tokens; 0 where none is spelled."""
        if self.character_logits is None or self.character_classes is None:
            return self.logits.new_zeros(())
        return cross_entropy_sum(self.character_logits, self.character_classes)

    def token_losses(self) -> Float64[Tensor, "batch time"]:
        """Return -log p of each target token including its spelling, in float32 or better; 0 at padding."""
        losses = token_losses(self.logits, self.classes).double()
        if self.character_logits is None or self.character_classes is None or self.spelled_positions is None:
            return losses
        characters = token_losses(self.character_logits, self.character_classes).double().sum(1)
        return losses.index_put(self.spelled_positions.unbind(1), characters, accumulate=True)

    def row_losses(self) -> Float64[Tensor, " batch"]:
        """Return -log p of each target including spellings; terms in float32 or better, sums in float64."""
        return self.token_losses().sum(1)


def predictions(model: torch.nn.Module, batch: PairBatch) -> Predictions:
    """Return the predictions of an ``EncoderDecoder`` on a batch, which is moved to the model's device."""
    batch = batch.to(device_of(model))
    inputs = model_inputs(model, batch)
    if not isinstance(model, EncoderDecoder) or model.spelling is None:
        return Predictions(model(*inputs), class_of(batch.targets))
    return predictions_from(model, model.hidden_states(*inputs), batch)


def model_inputs(
    model: torch.nn.Module, batch: PairBatch
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return the arguments of ``EncoderDecoder.forward`` for a batch on the model's device."""
    source, rare = spelled_source(model, batch.source, batch.unknown_source_words)
    return source, batch.inputs, batch.source_lengths, batch.lengths, rare


def predictions_from(
    model: EncoderDecoder, hidden_states: Float[Tensor, "batch time d_model"], batch: PairBatch
) -> Predictions:
    """Return the predictions on a batch, which is on the model's device, given the decoder's output."""
    logits, classes = model.logits(hidden_states), class_of(batch.targets)
    if model.spelling is None:
        return Predictions(logits, classes)
    words = _required(batch.unknown_target_words)
    unknown, spellings = words.index > 0, words.characters[words.index[words.index > 0] - 1]
    character_logits = model.spelling(hidden_states[unknown], spellings[:, :-1])
    return Predictions(logits, classes, character_logits, class_of(spellings[:, 1:]), unknown.nonzero())


def spelled_source(
    model: torch.nn.Module, source: Int[Tensor, "batch source"], words: UnknownWords | None
) -> tuple[Int[Tensor, "batch source"], Int[Tensor, "rare characters"] | None]:
    """Return the source ids as the model's embedding takes them.

    For a model that composes out-of-vocabulary source words from characters, these words get ids past the vocabulary.

    Returns:
        The ids, and the spellings of the ids past the vocabulary (None if the model has no such embedding).
    """
    embedding = model.source
    if not isinstance(embedding, SpelledEmbedding):
        return source, None
    words = _required(words)
    return torch.where(words.index > 0, embedding.vocabulary_size - 1 + words.index, source), words.characters


def _required(words: UnknownWords | None) -> UnknownWords:
    if words is None:
        raise StructattnError("the model spells words, but the pairs have no spellings")
    return words


def layer_without_weights(model: EncoderDecoder, weights: EncoderDecoderWeights) -> str | None:
    """Return the first layer that mixes positions without attention weights, as stacks do; None if there is none."""
    sides = (
        ("encoder", model.encoder.blocks, [(own, None) for own in weights.encoder]),
        ("decoder", model.decoder.blocks, weights.decoder),
    )
    for side, blocks, of_side in sides:
        for index, (block, of_block) in enumerate(zip(blocks, of_side, strict=True)):
            if block.lacks_weights(*of_block):
                return f"{side} layer {index}"
    return None


def pair_receptive_fields(
    weights: EncoderDecoderWeights, source_lengths: Lengths, lengths: Lengths, recursion: Union = "clamp"
) -> DecoderReceptiveFields:
    """Return the receptive fields of the decoder's positions (Discrete Transformer paper, section 5).

    The weights are those of all layers that mix positions; lengths of None mean no padding.
    """
    encoder = _encoder_field(weights, source_lengths, recursion)
    options = {"lengths": lengths, "memory_lengths": source_lengths}
    return decoder_receptive_fields(weights.decoder, encoder, union=recursion, **options)


def _encoder_field(
    weights: EncoderDecoderWeights, lengths: Tensor | None, recursion: Union
) -> Float[Tensor, "batch source source"]:
    """Return the identity for an encoder without self-attention."""
    attended = [own for own in weights.encoder if own is not None]
    if attended:
        return receptive_field(attended, lengths=lengths, union=recursion)
    across = next(cross for _, cross in weights.decoder if cross is not None)
    return torch.eye(across.shape[-1], dtype=across.dtype, device=across.device).expand(len(across), -1, -1)


def translation_model(run: LoadedRun) -> EncoderDecoder:
    """Return the model of a translation run, accelerated.

    Raises:
        UsageError: the model cannot translate.
    """
    if not isinstance(run.model, EncoderDecoder):
        raise cannot(run, "translate", "a translation model")
    model = run.accelerated
    assert isinstance(model, EncoderDecoder)
    return model
