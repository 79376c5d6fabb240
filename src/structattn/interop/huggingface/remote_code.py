"""Folders that load without an import of this package: they hold a file of one line that imports it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from structattn.support.files import create_folder_unflushed, write_unflushed

_MODULE: Final = "modeling_structattn"


def register_classes(classes: Mapping[Any, tuple[type[PreTrainedModel], ...]]) -> None:
    """Register models and their configurations with the AutoModels and AutoConfig."""
    for auto, models in classes.items():
        for model in models:
            config: Any = model.config_class
            AutoConfig.register(config.model_type, config, exist_ok=True)
            auto.register(config, model, exist_ok=True)
            if auto is AutoModelForCausalLM:  # the Trainer shifts the labels of label smoothing for these names alone
                MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type] = model.__name__


def auto_map_of(model: PreTrainedModel, classes: Mapping[Any, tuple[type[PreTrainedModel], ...]]) -> dict[str, str]:
    """Return the ``auto_map`` of the configuration of a model: the name of each AutoClass -> its class in the file."""
    config = type(model.config)
    found = {
        auto.__name__: each.__name__ for auto, all_ in classes.items() for each in all_ if each.config_class is config
    }
    return {name: f"{_MODULE}.{each}" for name, each in {"AutoConfig": config.__name__, **found}.items()}


def named_as_exported(stacked: type[Any], plain: type[Any]) -> type[Any]:
    """Give a class the name by which this package's ``__getattr__`` finds it, ``Stack`` and that of the plain one."""
    stacked.__name__ = stacked.__qualname__ = f"Stack{plain.__name__}"
    stacked.__module__ = __package__
    return stacked


class InstalledCode:
    """A configuration or model that stays one of this package where a folder names it."""

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoModel") -> None:
        """Do nothing: transformers would copy the source of the class into each folder that is saved."""


class SavedWithCode(InstalledCode):
    """A model that is saved with the file that its ``auto_map``, if it has one, names."""

    config: Any

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """As in transformers."""
        if auto_map := getattr(self.config, "auto_map", None):
            names = ", ".join(sorted({reference.rpartition(".")[2] for reference in auto_map.values()}))
            create_folder_unflushed(Path(save_directory))
            code = f"from structattn.interop.huggingface import {names}\n"
            write_unflushed(Path(save_directory, f"{_MODULE}.py"), code)
        super().save_pretrained(save_directory, *args, **kwargs)
