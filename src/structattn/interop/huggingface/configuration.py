"""Configurations: families of models with stacks, and the models of this package."""

from functools import cache
from typing import Any, ClassVar

from pydantic import TypeAdapter
from transformers import PreTrainedConfig

from structattn.interop.huggingface.remote_code import InstalledCode, named_as_exported
from structattn.settings.huggingface import StackLike, stack_from
from structattn.settings.models import OwnModelSettings
from structattn.support.special_tokens import BOS, EOS, PAD


class WithStack(InstalledCode):
    """Adds a ``stack`` field to a configuration.

    It can be set to settings (``PointerStack``, ...), to a dict with the same keys, or to None, which means a stack
    pointer in every layer. It is stored, and written to config.json, as a dict with all values. Configurations of plain
    models can be loaded, too.
    """

    plain_model_type: ClassVar[str]

    def __setattr__(self, name: str, value: Any) -> None:
        """Validate the settings of the stack and fill in defaults."""
        super().__setattr__(name, stack_from(value).model_dump(mode="json") if name == "stack" else value)

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As in transformers, but also accept the configuration of a plain model."""
        config, rest = super().get_config_dict(*args, **kwargs)
        if config.get("model_type") == cls.plain_model_type:
            config = {**config, "model_type": cls.model_type}  # type: ignore[attr-defined]
        return config, rest


@cache
def stacked_config(plain: Any) -> type[Any]:
    """Return the class of configurations of a family with stacks: ``LlamaConfig`` and ``stack`` for ``LlamaConfig``."""

    class Stacked(WithStack, plain):
        model_type = f"stack-{plain.model_type}"
        plain_model_type = plain.model_type
        stack: StackLike | None = None

    return named_as_exported(Stacked, plain)


class StructattnConfig(InstalledCode, PreTrainedConfig):
    """The settings of a causal or masked language model, and the size of its vocabulary.

    Fields:
        settings: a dict as under ``model`` in the settings of a run.
        vocab_size: the number of ids; for a masked model without the mask, whose id is this number.
    """

    model_type = "structattn"
    settings: dict[str, Any] | None = None
    vocab_size: int = 3
    pad_token_id: int = PAD
    bos_token_id: int = BOS
    eos_token_id: int = EOS

    def model_settings(self) -> OwnModelSettings:
        """Return the validated settings of the model.

        Raises:
            ValueError: a field is unknown or invalid.
        """
        return _SETTINGS.validate_python(self.settings or {})


class StructattnSeq2SeqConfig(StructattnConfig):
    """The settings of an encoder-decoder, and the sizes of both vocabularies.

    Fields:
        vocab_size: the number of ids of the target.
        source_vocab_size: the number of ids of the source.
    """

    model_type = "structattn-seq2seq"
    source_vocab_size: int = 3
    is_encoder_decoder: bool = True
    decoder_start_token_id: int = BOS


_SETTINGS: TypeAdapter[OwnModelSettings] = TypeAdapter(OwnModelSettings)
