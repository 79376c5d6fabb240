"""Configurations of GPT-2 and RoBERTa with stacks."""

from typing import Any, ClassVar

from transformers import GPT2Config, RobertaConfig

from structattn.settings.inserted_stacks import Stack, stack_from


class WithStack:
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


class StackGPT2Config(WithStack, GPT2Config):
    """``GPT2Config`` and ``stack``."""

    model_type = "stack-gpt2"
    plain_model_type = "gpt2"
    stack: Stack | dict[str, Any] | None = None


class StackRobertaConfig(WithStack, RobertaConfig):
    """``RobertaConfig`` and ``stack``."""

    model_type = "stack-roberta"
    plain_model_type = "roberta"
    stack: Stack | dict[str, Any] | None = None
