"""Parts of models that a format cannot express, by the names that they have in the settings."""

from structattn.loading.trained_run import TrainedRun
from structattn.settings.embeddings import TableEmbedding, WordEmbedding
from structattn.settings.encoder_decoder import EncoderDecoderSettings
from structattn.settings.model import LanguageModelSettings
from structattn.settings.models import ModelSettings
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.two_stream import TwoStreamEncoderDecoderSettings
from structattn.support.errors import UsageError


def refuse(run: TrainedRun, form: str, part: str, reason: str) -> UsageError:
    """Return the error for a part of a model that cannot be exported."""
    return UsageError(f"{run.run_dir}: {part} cannot be exported to {form}: {reason}")


def require_own_tables(run: TrainedRun, form: str) -> None:
    """Check that a model has one stream from encoder to decoder, and knows words by their ids alone.

    Raises:
        UsageError: a word is made of characters, or the encoder has two streams; the message names the part.
    """
    settings = run.settings.model
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
