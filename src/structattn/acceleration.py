"""Fast forms of models, where the package ``fast`` is there; without it, models run as they are."""

from importlib import import_module

from structattn.decoding import TranslationModel
from structattn.models import EncoderDecoder

FAST = "structattn.fast"


def accelerate_decoder(model: EncoderDecoder) -> TranslationModel:
    """Return the model for decoding: with a kernel for steps of its decoder where that computes the same, or itself.

    Its weights may change at any time, but its code may not. Before it returns, it compares both on random weights;
    where they differ, or modules have hooks, it logs one warning and returns the model.
    """
    try:
        import_module(FAST)
    except ModuleNotFoundError as error:
        if error.name != FAST:
            raise
        return model
    accelerated: TranslationModel = import_module(f"{FAST}.decoder").accelerate_decoder(model)
    return accelerated
