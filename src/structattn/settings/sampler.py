"""Settings of the sampler of a sweep: where the values of its trials come from."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Tag

from structattn.settings.base import Settings, discriminated_by, from_name
from structattn.support.reading import MAX_INTEGER


class RandomSampler(Settings):
    """Each value is drawn alone: it depends on the seed of the sweep, the field, and the trial's cell and index."""

    kind: Literal["random"] = "random"


class TpeSampler(Settings):
    """Tree-structured Parzen estimator (Bergstra et al. 2011), by Optuna.

    The values of a trial follow from the validation scores of earlier trials of its cell.
    """

    kind: Literal["tpe"]
    startup: int = Field(default=5, ge=1, le=MAX_INTEGER, description="trials of each cell that are drawn at random")
    parallel: int = Field(
        default=2,
        ge=1,
        le=MAX_INTEGER,
        description="trials of each cell that are proposed together, when all earlier ones have ended",
    )


_Sampler = Annotated[
    Annotated[RandomSampler, Tag("random")] | Annotated[TpeSampler, Tag("tpe")],
    discriminated_by("kind", default="random"),
]
Sampler = Annotated[_Sampler, BeforeValidator(from_name, json_schema_input_type=_Sampler | str)]
