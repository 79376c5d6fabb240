"""What an export needs to know of a run: the form of its inputs, and the parts that a format cannot express."""

from dataclasses import dataclass
from typing import Final

from structattn.loading.trained_run import TrainedRun
from structattn.settings.embeddings import UNLIMITED_POSITIONS, TableEmbedding, WordEmbedding, max_positions
from structattn.settings.models import ModelSettings
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.run import RECOGNITION
from structattn.settings.training import StreamBatches
from structattn.settings.transformer import (
    EncoderDecoderSettings,
    LanguageModelSettings,
    TwoStreamEncoderDecoderSettings,
    reads_bos,
)
from structattn.support.errors import UsageError
from structattn.support.special_tokens import BOS, EOS
from structattn.tasks.transductions.prepare import SEPARATOR


def refuse(run: TrainedRun, form: str, part: str, reason: str) -> UsageError:
    """Return the error for a part of a model that cannot be exported."""
    return UsageError(f"{run.run_dir}: {part} cannot be exported to {form}: {reason}")


def require_own_tables(run: TrainedRun, form: str) -> None:
    """Check that a model predicts tokens, has one stream from encoder to decoder, and knows words by their ids alone.

    Raises:
        UsageError: the model recognizes strings, a word is made of characters, or the encoder has two streams; the
            message names the part.
    """
    settings = run.settings.model
    if run.settings.task == RECOGNITION:
        raise refuse(run, form, "task: recognition", "its outputs are labels of prefixes; expected 'safetensors'")
    for part, embedding in _embeddings(settings).items():
        if not isinstance(embedding, TableEmbedding):
            raise refuse(run, form, f"model.{part}: {embedding.kind}", "it needs the characters of words")
    if isinstance(settings, EncoderDecoderSettings) and settings.decoder.spelling is not None:
        raise refuse(run, form, "model.decoder.spelling", "it spells words after they are predicted")
    if isinstance(settings, TwoStreamEncoderDecoderSettings):
        raise refuse(run, form, "model: two_stream_encoder_decoder", "its encoder has two outputs")


def _embeddings(settings: ModelSettings) -> dict[str, WordEmbedding]:
    if isinstance(settings, EncoderDecoderSettings):
        return {"encoder.embedding": settings.encoder.embedding, "decoder.embedding": settings.decoder.embedding}
    if isinstance(settings, LanguageModelSettings | LstmSettings | ElmanSettings):
        return {"embedding": settings.embedding}
    return {}


MASK_SYMBOL: Final = "<mask>"


def max_length(run: TrainedRun) -> int:
    """Return the maximum number of tokens of an input."""
    return max_positions(run.settings.model) or UNLIMITED_POSITIONS


@dataclass(frozen=True)
class InputForm:
    """Ids around the text in the inputs of a model.

    Args:
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
