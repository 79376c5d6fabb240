"""Sizes of models that match a number of parameters."""

import math
from dataclasses import dataclass
from typing import Any, Final

import torch

from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.run import RunSettings
from structattn.settings.training import LABEL_ONLY, Recognition
from structattn.settings.transformer import LanguageModelSettings
from structattn.support.devices import count_parameters
from structattn.support.errors import SettingsError
from structattn.tasks.model import build_model_for
from structattn.text.folders.prepared import PreparedFolder

_MOST: Final = 1 << 14  # of a width


@dataclass(frozen=True)
class MatchedSize:
    """Settings whose model has about a number of parameters.

    Args:
        settings: with another width.
        sizes: the fields of the model that give its width.
        matched: the parameters that were to match: for recognition, those without auxiliary outputs, as in FLaRe.
        total: all parameters.
    """

    settings: RunSettings
    sizes: dict[str, int]
    matched: int
    total: int

    def __str__(self) -> str:
        """Return for example ``d_model 32, d_ff 128: 63,745 parameters, 63,909 with auxiliary outputs``."""
        sizes = ", ".join(f"{name} {size}" for name, size in self.sizes.items())
        more = "" if self.total == self.matched else f", {self.total:,} with auxiliary outputs"
        return f"{sizes}: {self.matched:,} parameters{more}"


def matched_size(settings: RunSettings, prepared: PreparedFolder, parameters: int) -> MatchedSize:
    """Choose the width of a model with which its number of parameters is nearest to a given one.

    The width is d_model, in multiples of the number of heads, with d_ff in the same ratio as before; or hidden_size,
    with embedding_size where that was the same. Sizes of stacks stay as they are. Cost: some twenty models without
    weights.

    Raises:
        SettingsError: the model is of another kind, or has more parameters at its smallest width or fewer at 16,384.
    """
    step = _step(settings)

    def count(units: int, recognition: Recognition = LABEL_ONLY) -> int:
        return num_parameters(_with_width(settings, units * step)[0], prepared, recognition)

    low, high, most = 0, 1, max(1, _MOST // step)
    while count(high) < parameters:
        if high == most:
            raise SettingsError(f"--parameters {parameters}: the model has fewer even with a width of {most * step}")
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < parameters else (low, middle)
    if not low and count(high) > parameters:
        raise SettingsError(f"--parameters {parameters}: the model has {count(high)} with its smallest width, {step}")
    units = min((each for each in (low, high) if each), key=lambda each: abs(count(each) - parameters))
    chosen, sizes = _with_width(settings, units * step)
    total = num_parameters(chosen, prepared, settings.training.recognition)
    return MatchedSize(chosen, sizes, count(units), total)


def num_parameters(settings: RunSettings, prepared: PreparedFolder, recognition: Recognition) -> int:
    """Return the number of parameters of a model, which is built without weights."""
    with torch.device("meta"):
        return count_parameters(build_model_for(settings.model, prepared, recognition=recognition))


def _step(settings: RunSettings) -> int:
    """Return the number by which widths must be divisible."""
    model = settings.model
    if isinstance(model, LstmSettings | ElmanSettings):
        return 1
    if not isinstance(model, LanguageModelSettings):
        raise SettingsError(f"--parameters: model.kind {model.kind!r}; expected 'transformer', 'lstm' or 'rnn'")
    of_layers = [getattr(part, "num_heads", None) for layer in model.layers for part in (layer, layer.stack)]
    return math.lcm(model.num_heads, *(each for each in of_layers if each))


def _with_width(settings: RunSettings, width: int) -> tuple[RunSettings, dict[str, int]]:
    """Return settings with another width, and the fields that give it."""
    model = settings.model
    sizes: dict[str, int]
    if isinstance(model, LanguageModelSettings):
        sizes = {"d_model": width}
        if model.d_ff is not None:
            sizes["d_ff"] = max(1, round(width * model.d_ff / model.d_model))
    else:
        assert isinstance(model, LstmSettings | ElmanSettings)
        sizes = {"hidden_size": width}
        if model.embedding_size == model.hidden_size:
            sizes["embedding_size"] = width
    tree: dict[str, Any] = settings.model_dump(mode="json")
    tree["model"] |= sizes
    return RunSettings.model_validate(tree), sizes
