"""What tells a transformer where its tokens stand."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Tag

from structattn.settings.base import Settings, discriminated_by, from_name

Layout = Literal["interleaved", "halves"]


class NoPositions(Settings):
    """Nothing but causal masks and stacks."""

    kind: Literal["none"]


class Sinusoidal(Settings):
    """Sines and cosines added to the embeddings (Vaswani et al. 2017)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Layout = Field(default="interleaved", description="sine beside its cosine, or all sines before all cosines")
    base: float = Field(default=10000.0, gt=0, description="wave lengths run from 2π to about 2π times this")
    denominator: Literal["d", "d-2"] = Field(default="d", description="of the exponents; d-2 as in tensor2tensor")
    direction: Literal["forward", "backward"] = Field(
        default="forward", description="count from the start, or from the end of the padded sequence"
    )


class Learned(Settings):
    """A learned vector for each position, added to the embeddings."""

    kind: Literal["learned"]
    max_positions: int = Field(default=512, ge=1, description="the longest sequence, in tokens")


class Relative(Settings):
    """Scores by content and by offset (Dai et al. 2019, Transformer-XL)."""

    kind: Literal["relative"]
    base: float = Field(default=10000.0, gt=0, description="of the frequencies; 256 in the code of Li et al. (2024)")


class Rotary(Settings):
    """Queries and keys turned by angles that grow with the position (Su et al. 2021)."""

    kind: Literal["rotary"]
    base: float = Field(default=10000.0, gt=0, description="of the frequencies")
    layout: Layout = Field(default="interleaved", description="how the components of a head form pairs")


class Alibi(Settings):
    """Scores that fall with the distance (Press et al. 2022, ALiBi)."""

    kind: Literal["alibi"]
    variant: Literal["textbook", "shifted"] = Field(
        default="textbook",
        description="shifted: half a step nearer for earlier keys, as in the code of Li et al. (2024)",
    )


_Positions = Annotated[
    Annotated[NoPositions, Tag("none")]
    | Annotated[Sinusoidal, Tag("sinusoidal")]
    | Annotated[Learned, Tag("learned")]
    | Annotated[Relative, Tag("relative")]
    | Annotated[Rotary, Tag("rotary")]
    | Annotated[Alibi, Tag("alibi")],
    discriminated_by("kind", default="sinusoidal"),
]
Positions = Annotated[_Positions, BeforeValidator(from_name, json_schema_input_type=_Positions | str)]


def most_tokens(model: object) -> int | None:
    """How many tokens the learned positions of a model's settings reach to; None where nothing ends."""
    positions = getattr(model, "positions", None)
    return positions.max_positions if isinstance(positions, Learned) else None
