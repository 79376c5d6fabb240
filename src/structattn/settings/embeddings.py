"""Settings of word embeddings, positions and the decoder that spells unknown words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, PositiveFloat

from structattn.settings.base import NumLayers, OneOf, Settings, Size, literal_of, of_kind, registered_name
from structattn.support.errors import UsageError
from structattn.support.imports import lazy_function
from structattn.support.plugins import Plugin, Registry, require_arguments


class TableEmbedding(Settings):
    """An embedding for each token of the vocabulary."""

    kind: Literal["table"] = "table"


class _CharacterEmbedding(Settings):
    words: Literal["all", "rare"] = Field(
        default="all",
        description="words that are embedded by their characters: all, or out-of-vocabulary words only; others have an "
        "embedding each",
    )
    character_embedding_size: Size = Field(default=50, description="size of the character embeddings")


class C2wEmbedding(_CharacterEmbedding):
    """Bidirectional LSTM over the characters of a word, C2W (Ling et al. 2015); for data at word level."""

    kind: Literal["c2w"]
    hidden_size: Size = Field(default=150, description="number of hidden units of each LSTM")
    coupled: bool = Field(
        default=False, description="peepholes and coupled gates as in the paper, slow; false: ordinary LSTM cells"
    )


class CharacterLstmEmbedding(_CharacterEmbedding):
    """Last state of a deep LSTM over the characters of a word (Luong & Manning 2016); for data at word level."""

    kind: Literal["character_lstm"]
    num_layers: NumLayers = Field(default=2, description="number of LSTM layers; their hidden size is d_model")


WordEmbedding = Annotated[
    TableEmbedding | C2wEmbedding | CharacterLstmEmbedding,
    OneOf("kind", "table", of_kind),
    Field(description="embeddings: table, c2w or character_lstm, a name or a mapping with its fields"),
]


def _refuse_rare(embedding: Any) -> Any:
    if getattr(embedding, "words", "all") == "rare":
        raise ValueError(
            "words: rare is for the source of a translation; out-of-vocabulary words of other inputs are <unk>"
        )
    return embedding


TextEmbedding = Annotated[WordEmbedding, AfterValidator(_refuse_rare)]
"""Embeddings of any input but the source of a translation."""


class SpellingSettings(Settings):
    """LSTM that spells words predicted as <unk> (Luong & Manning 2016); for data at word level."""

    character_embedding_size: Size = Field(default=50, description="size of the character embeddings")
    hidden_size: Size | None = Field(default=None, description="hidden units of each LSTM layer; null: d_model")
    num_layers: NumLayers = Field(default=2, description="number of LSTM layers")
    path: Literal["separate", "same"] = Field(
        default="separate",
        description="initial state of the LSTM: tanh(W h), h the hidden state of the decoder (separate), or h, which "
        "also predicts the word (same)",
    )


Layout = Literal["interleaved", "halves"]


class NoPositions(Settings):
    """No positional encoding."""

    kind: Literal["none"]


class Sinusoidal(Settings):
    """Sinusoidal encodings added to the embeddings (Vaswani et al. 2017)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Layout = Field(
        default="interleaved", description="sines and cosines alternate, or all sines precede all cosines (halves)"
    )
    base: PositiveFloat = Field(default=10000.0, description="wavelengths range from 2π to about 2π times this")
    denominator: Literal["d", "d-2"] = Field(
        default="d", description="denominator of the exponents; d-2 as in tensor2tensor"
    )
    direction: Literal["forward", "backward"] = Field(
        default="forward",
        description="positions count from the start, or from the end of the text, which masked models and "
        "transductions know",
    )


class Learned(Settings):
    """Learned embeddings of positions, added to those of tokens."""

    kind: Literal["learned"]
    max_positions: Size = Field(default=512, description="maximum sequence length, in tokens")


class Relative(Settings):
    """Relative positions of Transformer-XL (Dai et al. 2019)."""

    kind: Literal["relative"]
    base: PositiveFloat = Field(
        default=10000.0, description="base of the frequencies; 256 in the code of Li et al. (2024)"
    )


class Rotary(Settings):
    """Rotary positions, RoPE (Su et al. 2021)."""

    kind: Literal["rotary"]
    base: PositiveFloat = Field(default=10000.0, description="base of the frequencies")
    layout: Layout = Field(
        default="interleaved", description="pairs of rotated components: neighbours (interleaved), or one of each half"
    )


class Alibi(Settings):
    """Linear biases by distance, ALiBi (Press et al. 2022)."""

    kind: Literal["alibi"]
    variant: Literal["textbook", "shifted"] = Field(
        default="textbook",
        description="shifted: distances of earlier keys are smaller by 0.5, as in the code of Li et al. (2024)",
    )


@dataclass(frozen=True)
class Positions:
    """Entry of positional encodings: their settings and what builds them.

    Args:
        settings: the settings class; its field ``kind`` is a literal, the name. A field ``max_positions`` is the
            maximum sequence length.
        added: d_model, settings -> module that is added to the embeddings: called with the first position and the
            number of positions, it returns (positions, d_model).
        scores: number of heads, size of a head, settings -> ``ScorePositions``, made for each layer.
    """

    settings: type[Settings]
    added: Callable[[int, Any], Any] | None = None
    scores: Callable[[int, int, Any], Any] | None = None

    def register(self, plugin: Plugin) -> None:
        """Add this to the positional encodings.

        Raises:
            UsageError: the name is taken or missing, or a builder is missing or takes other arguments.
        """
        name = registered_name(self.settings, "kind")
        if self.added is None and self.scores is None:
            raise UsageError(f"positions {name!r}: have no builder; expected added or scores")
        require_arguments(f"positions {name!r}: added", self.added, "d_model", "settings")
        require_arguments(f"positions {name!r}: scores", self.scores, "num_heads", "size", "settings")
        POSITIONS.add(name, self, plugin)


def _builder(name: str) -> Callable[..., Any]:
    return lazy_function("structattn.models.builders.mechanisms", name)


_ENTRIES = (
    Positions(NoPositions),
    Positions(Sinusoidal, added=_builder("sinusoidal")),
    Positions(Learned, added=_builder("learned")),
    Positions(Relative, scores=_builder("relative")),
    Positions(Rotary, scores=_builder("rotary")),
    Positions(Alibi, scores=_builder("alibi")),
)
POSITIONS: Registry[Positions] = Registry("positions", {literal_of(each.settings, "kind"): each for each in _ENTRIES})


def _kinds() -> list[type[Settings]]:
    return [entry.settings for entry in POSITIONS.values()]


PositionSettings = Annotated[Settings, OneOf("kind", "sinusoidal", of_kind, _kinds)]


UNLIMITED_POSITIONS: Final = 1024
"""The maximum sequence length that exports state for models whose positions have none."""


def max_positions(model: object) -> int | None:
    """Return the maximum sequence length of a model with learned positions; None for other models."""
    holder = getattr(model, "positions", model)
    maximum: int | None = getattr(holder, "max_positions", None)
    return maximum


def max_positions_field(model: object) -> str:
    """Return the field of the settings of a model that has its maximum sequence length."""
    return "model.positions.max_positions" if hasattr(model, "positions") else "model.max_positions"
