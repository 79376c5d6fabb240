"""Settings of GPT-2 and RoBERTa, and of stacks that are inserted into models of transformers."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, cast

from pydantic import Field, TypeAdapter, ValidationError, create_model, model_validator
from pydantic_core import ErrorDetails

from structattn.settings.base import (
    NumLayers,
    OneOf,
    Probability,
    Settings,
    Size,
    hint_for_unknown,
    words_of,
)
from structattn.settings.layers import added_stack_from_short
from structattn.settings.mechanisms import MECHANISMS, Mechanism
from structattn.settings.stacks import Nondeterministic, StackPointer, Superposition
from structattn.support.errors import quoted


class StackPlacement(Settings):
    """Where stacks go, and how they join the residual stream: h <- h + S(h), or h <- h + g S(h) with a gate."""

    layers: tuple[int, ...] | None = Field(
        default=None, description="the layers that get a stack, counted from 0, negative from the end; all where None"
    )
    gate: bool = Field(
        default=False, description="a learned factor g, 0 at first, so that a pretrained model starts as it was"
    )


class PointerStack(StackPlacement, StackPointer):
    """Stack pointer attention, with the hidden states as values (Li et al. 2024, section 3).

    The empty stack is the first token that is not padding: in the paper a symbol that begins the text, in its
    experiments with pretrained models the first word.
    """

    attention: Literal["stack_pointer"] = "stack_pointer"


class SuperpositionStack(StackPlacement, Superposition):
    """Superposition stack attention (DuSell & Chiang 2024, section 5)."""

    attention: Literal["superposition"] = "superposition"


class NondeterministicStack(StackPlacement, Nondeterministic):
    """Nondeterministic stack attention (DuSell & Chiang 2024, section 5)."""

    attention: Literal["nondeterministic"] = "nondeterministic"


Stack: TypeAlias = StackPlacement  # of any mechanism, whether it has a class above or not
StackLike: TypeAlias = Settings | Mapping[str, Any] | str
_NAMED: Mapping[str, type[Settings]] = {
    "stack_pointer": PointerStack,
    "superposition": SuperpositionStack,
    "nondeterministic": NondeterministicStack,
}


@cache
def _stack_class(entry: Mechanism) -> type[Settings]:
    """Return the settings class of an added stack; one without a class above is given as a dict."""
    if entry.name in _NAMED:
        return _NAMED[entry.name]
    bases = StackPlacement, entry.settings
    return cast(type[Settings], create_model(f"{entry.settings.__name__}Stack", __base__=bases, __module__=__name__))


def _inserted_stacks() -> list[type[Settings]]:
    return [_stack_class(entry) for entry in MECHANISMS.values() if entry.added_stack]


if TYPE_CHECKING:
    InsertedStack: TypeAlias = Stack
else:
    InsertedStack = Annotated[Settings, OneOf("attention", "stack_pointer", added_stack_from_short, _inserted_stacks)]
_STACK: TypeAdapter[Stack] = TypeAdapter(InsertedStack)


def stack_from(value: StackLike | None) -> Stack:
    """Return the settings given by ``value``; None means those of the paper, a stack pointer in every layer.

    Raises:
        ValueError: the mechanism or a key is unknown, a key is missing, or a value out of range.
    """
    given: object = value
    if value is None or isinstance(value, Mapping):
        given = dict(value or {})
    elif isinstance(value, Settings) and not isinstance(value, StackPlacement):
        given = value.model_dump()  # of a mechanism, without a placement
    try:
        return _STACK.validate_python(given)
    except ValidationError as error:
        raise ValueError("; ".join(map(_problem, error.errors(include_url=False)))) from None


def _problem(error: ErrorDetails) -> str:
    """Return what is wrong with the settings of a stack; of a location, the first part is the mechanism."""
    location = error["loc"]
    path, words = ".".join(("stack", *map(str, location[1:]))), words_of(error)
    if error["type"] == "extra_forbidden":
        known = _stack_class(MECHANISMS[str(location[0])])
        return f"{path}: {words}{hint_for_unknown(known, str(location[-1]), location[1:])}"
    stated = isinstance(error["input"], dict) or (error["type"] == "value_error" and repr(error["input"]) in words)
    return f"{path}: {words}" + ("" if stated else f", got {quoted(error['input'])}")


def stack_layers(stack: Stack, count: int) -> set[int]:
    """Which of ``count`` layers get a stack.

    Raises:
        ValueError: a layer that does not exist, or one named twice.
    """
    if stack.layers is None:
        return set(range(count))
    if any(not -count <= index < count for index in stack.layers):
        raise ValueError(f"stack.layers={stack.layers}; expected numbers from {-count} to {count - 1}")
    chosen = {index % count for index in stack.layers}
    if len(chosen) < len(stack.layers):
        raise ValueError(f"stack.layers={stack.layers} names a layer twice")
    return chosen


class HuggingfaceSettings(Settings):
    """Base class of models of transformers; the default sizes are those of the smallest published models."""

    d_model: Size = Field(default=768, description="size of the hidden states")
    d_ff: Size = Field(default=3072, description="hidden units of the feed-forward sublayers")
    num_heads: Size = Field(default=12, description="number of attention heads")
    num_layers: NumLayers = Field(default=12, description="number of layers")
    max_positions: Size = Field(default=512, description="maximum sequence length, in tokens")
    dropout: Probability = Field(default=0.1, description="dropout rate of embeddings, attention weights and sublayers")
    stack: InsertedStack | None = Field(
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
            if isinstance(self.stack, PointerStack) and self.d_model % self.stack.num_heads:
                raise ValueError(
                    f"d_model {self.d_model} is not divisible by num_heads {self.stack.num_heads} of the stack"
                )
        return self


class Gpt2Settings(HuggingfaceSettings):
    """GPT-2 of transformers, optionally with stacks; for causal language modeling."""

    kind: Literal["gpt2"]
    max_positions: Size = Field(default=1024, description="maximum sequence length, in tokens")


class RobertaSettings(HuggingfaceSettings):
    """RoBERTa of transformers, optionally with stacks; for masked language modeling."""

    kind: Literal["roberta"]
    bos: bool = Field(
        default=True, description="whether inputs begin with <bos>; false as in the code of Li et al. (2024)"
    )
