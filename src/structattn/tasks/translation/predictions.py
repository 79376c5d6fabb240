"""What a model predicts of a batch of pairs: words, and the characters of words that have no number."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from structattn.data.batching.pairs import PairBatch
from structattn.data.batching.unknown_words import UnknownWords
from structattn.models import SpelledEmbedding
from structattn.support.errors import StructattnError
from structattn.support.special_tokens import class_of
from structattn.tasks.sequence_loss import cross_entropy_sum, token_losses


@dataclass(frozen=True)
class Predictions:
    """Logits and what should have been predicted.

    Args:
        logits: of the target tokens, each given its source and what stands before it.
        classes: of the target tokens; those of <pad> count nowhere.
        character_logits: of the spelling of each target word that is <unk>; None where the model does not spell.
        character_classes: of those characters and the mark after the last.
        spelt_rows: the row of the batch in which each of these words stands.
    """

    logits: Float[Tensor, "batch time classes"]
    classes: Int[Tensor, "batch time"]
    character_logits: Float[Tensor, "words characters characterclasses"] | None = None
    character_classes: Int[Tensor, "words characters"] | None = None
    spelt_rows: Int[Tensor, " words"] | None = None

    def word_loss(self) -> Float[Tensor, ""]:
        """-log p of the words, <unk> being one."""
        return cross_entropy_sum(self.logits, self.classes)

    def character_loss(self) -> Float[Tensor, ""]:
        """-log p of the spellings of those that are <unk>; 0 where none is spelt."""
        if self.character_logits is None or self.character_classes is None:
            return self.logits.new_zeros(())
        return cross_entropy_sum(self.character_logits, self.character_classes)

    def row_losses(self) -> Float64[Tensor, " batch"]:
        """-log p of each target, its words and their spellings; terms in the logits' precision, sums in float64."""
        nats = token_losses(self.logits, self.classes).double().sum(1)
        if self.character_logits is None or self.character_classes is None or self.spelt_rows is None:
            return nats
        characters = token_losses(self.character_logits, self.character_classes).double().sum(1)
        return nats.index_add(0, self.spelt_rows, characters)


def predictions(model: torch.nn.Module, batch: PairBatch) -> Predictions:
    """What a model predicts of a batch, which need not be on its device."""
    batch = batch.to(next(model.parameters()).device)
    source, rare = spelt_source(model, batch.source, batch.unknown_source_words)
    classes, lengths = class_of(batch.targets), (batch.source_lengths, batch.lengths)
    if getattr(model, "spelling", None) is None:
        return Predictions(model(source, batch.inputs, *lengths, rare), classes)
    words = _required(batch.unknown_target_words)
    spellings = words.characters[words.index[words.index > 0] - 1]
    spell: Any = model.with_spellings
    found = spell(source, batch.inputs, words.index > 0, spellings[:, :-1], *lengths, rare)
    rows = (words.index > 0).nonzero()[:, 0]
    return Predictions(found[0], classes, found[1], class_of(spellings[:, 1:]), rows)


def spelt_source(
    model: torch.nn.Module, source: Int[Tensor, "batch source"], words: UnknownWords | None
) -> tuple[Int[Tensor, "batch source"], Int[Tensor, "rare characters"] | None]:
    """The source as a model reads it: a model that spells its source is given ids past the vocabulary for rare words.

    Returns:
        The ids; and the spellings of those that are past the vocabulary, None where nothing is spelt.
    """
    embedding = model.source
    if not isinstance(embedding, SpelledEmbedding):
        return source, None
    words = _required(words)
    return torch.where(words.index > 0, embedding.vocabulary_size - 1 + words.index, source), words.characters


def _required(words: UnknownWords | None) -> UnknownWords:
    if words is None:
        raise StructattnError("the model spells words, and the pairs have no spellings")
    return words
