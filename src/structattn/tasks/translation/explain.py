"""What a translation model does on single pairs, under teacher forcing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from structattn.decoding import greedy_search, max_target_lengths, start_translation
from structattn.models.encoder_decoder import EncoderDecoder, EncoderDecoderExplanation
from structattn.support.devices import device_of
from structattn.support.shapes import Float
from structattn.support.special_tokens import UNK
from structattn.tasks.loaded import TARGETS, TEXTS, ExplainedLayer, LoadedRun
from structattn.tasks.translation.pairs import EncodedPair, PairEncoder
from structattn.tasks.translation.predictions import model_inputs, predictions, spelled_source, translation_model
from structattn.text.batching.pairs import PairBatch, make_pair_batch


@dataclass(frozen=True)
class PairExplainer:
    """Explains a translation model; see ``Explainer``. The targets of texts are translations."""

    run: LoadedRun
    has_targets: ClassVar[bool] = True

    @torch.no_grad()
    def text(self, text: str, target: str | None, number: int) -> PairBatch:
        """Return a source line with its translation or the one that greedy search finds."""
        model = translation_model(self.run)
        encoder = PairEncoder((model,), self.run.prepared.sides)
        pair = encoder(text, target or "", (TEXTS, TARGETS), number)
        if target is not None:
            return encoder.batch([pair])
        batch = encoder.batch([pair]).to(device_of(model))
        ids, rare = spelled_source(model, batch.source, batch.unknown_source_words)
        limits = max_target_lengths(batch.source_lengths - 1, maximum=model.max_target_positions)
        (translation,) = greedy_search(model, start_translation(model, ids, batch.source_lengths, rare), limits)
        return decoded_pair_batch(encoder, pair, translation.text)

    def example(self, split: str, index: int) -> PairBatch:
        """Return a pair of a split."""
        return make_pair_batch(self.run.prepared.pairs(split), [index])

    @torch.no_grad()
    def layers(self, batch: PairBatch) -> list[ExplainedLayer]:
        """Return the explanations of the layers of the encoder, and then of the decoder."""
        sides, layers = self.run.prepared.sides, list[ExplainedLayer]()
        source = tuple(sides.source.vocabulary.symbols[token] for token in batch.source[0].tolist())
        target = tuple(sides.target.vocabulary.symbols[token] for token in batch.inputs[0].tolist())
        explanation = explain_pairs(translation_model(self.run), batch)
        layers += [ExplainedLayer(layer, source, side="encoder") for layer in explanation.encoder]
        for layer in explanation.decoder:
            layers.append(ExplainedLayer(layer, target, source if layer.sublayer == "cross" else None, "decoder"))
        return layers

    @torch.no_grad()
    def surprisal(self, batch: PairBatch) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, " time"]]:
        """Return the target tokens and -log p of each, given the source and the tokens up to its position."""
        losses = predictions(self.run.model, batch).token_losses()[0].cpu().numpy()
        return batch.targets[0].numpy(), losses


def explain_pairs(model: EncoderDecoder, batch: PairBatch) -> EncoderDecoderExplanation:
    """Return the attention weights of all layers for a batch of pairs, under teacher forcing."""
    source, target, source_lengths, lengths, rare = model_inputs(model, batch.to(device_of(model)))
    return model.explain(source, target, source_lengths, lengths, rare)


def decoded_pair_batch(
    encoder: PairEncoder, pair: EncodedPair, translation: tuple[int, ...], replacements: Iterable[str] = ()
) -> PairBatch:
    """Return a source with the ids of a translation that was decoded, without <eos>, as a batch of size 1.

    The last id of a translation that was cut at the model's last position is left out: <eos> follows in the batch.

    Args:
        encoder: of the model.
        pair: the source, with any target.
        translation: the ids.
        replacements: the words of the <unk> among them, whose spellings a model may predict; <unk> itself where
            missing.
    """
    symbols, rest = encoder.sides.target.vocabulary.symbols, iter(replacements)
    if len(translation) == encoder.max_target_length:
        translation = translation[:-1]
    words = tuple(next(rest, symbols[UNK]) if token == UNK else symbols[token] for token in translation)
    return encoder.batch(
        [EncodedPair(pair.source, translation, None if pair.words is None else (pair.words[0], words))]
    )
