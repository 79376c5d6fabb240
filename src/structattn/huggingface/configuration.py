"""Configurations of GPT-2 and RoBERTa with stacks."""

from typing import Any, ClassVar

from transformers import GPT2Config, RobertaConfig

from structattn.huggingface.stacks import Stack, stack_from


class WithStack:
    """A ``stack`` field beside those of a plain configuration.

    It may be set to settings (``PointerStack`` and the others), to a dict of the same content, or to None, which stands
    for a stack pointer in every layer; it is kept, and written to config.json, as a dict with all values filled in. A
    plain model's configuration folder is read as well.
    """

    plain_model_type: ClassVar[str]

    def __setattr__(self, name: str, value: Any) -> None:
        """Fill in what is left out of the stack's settings, and refuse what they do not know."""
        super().__setattr__(name, stack_from(value).model_dump(mode="json") if name == "stack" else value)

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As in transformers, but a plain model's configuration counts as one of this kind."""
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
