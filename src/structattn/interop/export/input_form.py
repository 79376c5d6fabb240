"""What the inputs of a run's model begin and end with."""

from dataclasses import dataclass

from structattn.loading.trained_run import TrainedRun
from structattn.settings.model import reads_bos
from structattn.settings.training import StreamBatches
from structattn.support.special_tokens import BOS, EOS
from structattn.tasks.transductions.prepare import SEPARATOR

MASK_SYMBOL = "<mask>"


@dataclass(frozen=True)
class InputForm:
    """Ids around the text in the inputs of a model.

    Args:
        before: ids before the text.
        after: ids after the text.
        has_mask: whether the model knows a mask, whose id is the vocabulary size.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    has_mask: bool = False


def input_form(run: TrainedRun) -> InputForm:
    """Return the form of the inputs of a run's model; of a translation, that of its source."""
    settings = run.settings
    bos = (BOS,) * reads_bos(settings.model)
    match settings.task:
        case "translation":
            return InputForm(after=(EOS,))
        case "masked_language_modeling":
            return InputForm(bos, (EOS,), has_mask=True)
        case "autoregressive_transduction":
            return InputForm((BOS,), (run.prepared.vocabulary.id_of[SEPARATOR],))
        case "masked_transduction":
            return InputForm(bos)
    return InputForm((EOS,) if isinstance(settings.training.batches, StreamBatches) else (BOS,))
