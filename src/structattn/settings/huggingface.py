"""Settings of models of Hugging Face transformers."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from structattn.settings.base import MAX_LAYERS, MAX_SIZE, Settings
from structattn.settings.inserted_stacks import InsertedStack, stack_layers
from structattn.settings.short_form import mechanism_from_short


class HuggingfaceSettings(Settings):
    """Base class of models of transformers; the default sizes are those of the smallest published models."""

    d_model: int = Field(default=768, ge=1, le=MAX_SIZE, description="size of the hidden states")
    d_ff: int = Field(default=3072, ge=1, le=MAX_SIZE, description="hidden units of the feed-forward sublayers")
    num_heads: int = Field(default=12, ge=1, le=MAX_SIZE, description="number of attention heads")
    num_layers: int = Field(default=12, ge=1, le=MAX_LAYERS, description="number of layers")
    max_positions: int = Field(default=512, ge=1, le=MAX_SIZE, description="maximum sequence length, in tokens")
    dropout: float = Field(
        default=0.1, ge=0, lt=1, description="dropout rate of embeddings, attention weights and sublayers"
    )
    stack: Annotated[
        InsertedStack | None, BeforeValidator(mechanism_from_short, json_schema_input_type=InsertedStack | str | None)
    ] = Field(
        default=None,
        description="stack added after each layer, or after those in `layers`: stack_pointer as in Li et al. (2024), "
        "another short form, or a mapping; null: none",
    )
    pretrained: Path | None = Field(
        default=None,
        description="local folder with config.json, model.safetensors and tokenizer of a model of these sizes, whose "
        "weights are the initial ones; null: random",
    )

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}")
        if self.stack is not None:
            stack_layers(self.stack, self.num_layers)
        return self


class Gpt2Settings(HuggingfaceSettings):
    """GPT-2 of transformers, optionally with stacks; for causal language modeling."""

    kind: Literal["gpt2"]
    max_positions: int = Field(default=1024, ge=1, le=MAX_SIZE, description="maximum sequence length, in tokens")


class RobertaSettings(HuggingfaceSettings):
    """RoBERTa of transformers, optionally with stacks; for masked language modeling."""

    kind: Literal["roberta"]
    bos: bool = Field(
        default=True, description="whether inputs begin with <bos>; false as in the code of Li et al. (2024)"
    )
