"""Settings of stacks."""

from typing import Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from structattn.settings.base import Positive, Settings, Size

_Stack = TypeVar("_Stack", "Superposition", "StackTrans")


def _require_equal_parts(stack: _Stack) -> _Stack:
    if stack.stack_embedding_size % stack.num_heads:
        raise ValueError(
            f"stack_embedding_size {stack.stack_embedding_size} is not divisible by num_heads {stack.num_heads}"
        )
    return stack


class Superposition(Settings):
    """Superposition stack attention (DuSell & Chiang 2024, section 5)."""

    attention: Literal["superposition"]
    stack_embedding_size: Size = Field(description="m, the size of the stack vectors")
    pushed_activation: Literal["sigmoid", "none"] = Field(
        default="sigmoid",
        description="activation of pushed vectors; sigmoid in the paper, none in the authors' code of transformers",
    )
    num_heads: Size = Field(default=1, description="number of stacks, each with vectors of size m / num_heads")

    _check_num_heads = model_validator(mode="after")(_require_equal_parts)


class RecurrentSuperposition(Superposition):
    """Superposition stack of a recurrent network (Joulin & Mikolov 2015; DuSell & Chiang 2024, section 6)."""

    pushed_activation: Literal["sigmoid", "none"] = Field(
        default="sigmoid",
        description="activation of pushed vectors; sigmoid in the papers and in the code of DuSell & Chiang (2024), "
        "none in that of Li et al. (2024)",
    )
    num_heads: Literal[1] = Field(default=1, description="1; several stacks are for transformers")
    depth: Positive | None = Field(
        default=None,
        description="number of vectors that the stack holds, those below are lost; null: no limit, 100 in the code of "
        "Li et al. (2024)",
    )


class Nondeterministic(Settings):
    """Nondeterministic stack attention (DuSell & Chiang 2024, section 5)."""

    attention: Literal["nondeterministic"]
    num_states: int = Field(ge=1, le=16, description="Q, number of states of the pushdown automaton")
    stack_alphabet_size: int = Field(ge=1, le=16, description="S, number of stack symbols, including the bottom symbol")
    stack_embedding_size: Size = Field(description="m, the size of the stack vectors")
    pushed_activation: Literal["sigmoid", "exp"] = Field(
        default="sigmoid",
        description="activation of pushed vectors; sigmoid in the paper, exp in the authors' code of transformers",
    )
    window: Positive | None = Field(
        default=None, description="maximum number of steps between the push and the pop of an item; null: no limit"
    )
    pop_offset: float = Field(
        default=0.0,
        ge=-100,
        le=100,
        description="number added to the log-weights of pops, 0 in the paper; with 2, nine of ten seeds learned to use "
        "the stack on w#w^R, and seven with 0, which leaves undecided whether it helps",
    )
    phase_offset: float = Field(
        default=0.0,
        ge=-100,
        le=100,
        description="number subtracted from the log-weights of pushes and replacements that leave state 0, and added "
        "to those of pops between other states; 0 in the paper. At first, state 0 pushes and the others pop",
    )


class RecurrentNondeterministic(Nondeterministic):
    """Nondeterministic stack of a recurrent network (DuSell & Chiang 2023), whose actions have biases."""

    pushed_activation: Literal["sigmoid", "exp"] = Field(
        default="sigmoid", description="activation of pushed vectors; sigmoid in the paper and in the authors' code"
    )
    pop_offset: float = Field(default=0.0, description="0; for transformers only")
    phase_offset: float = Field(default=0.0, description="0; for transformers only")

    @field_validator("pop_offset", "phase_offset")
    @classmethod
    def _check_offset(cls, offset: float, info: ValidationInfo) -> float:
        if offset != 0:
            name = info.field_name
            raise ValueError(f"{name} is for transformers; actions of a recurrent network have biases, expected 0")
        return offset


class Stratified(Settings):
    """Stratified stack of a recurrent network (Grefenstette et al. 2015)."""

    attention: Literal["stratified"]
    stack_embedding_size: Size = Field(description="m, the size of the stack vectors")
    pushed_activation: Literal["tanh", "sigmoid", "none"] = Field(
        default="tanh", description="activation of pushed vectors; tanh in the paper"
    )


class StackPointer(Settings):
    """Stack attention by pointers to positions (Li et al. 2024)."""

    attention: Literal["stack_pointer"]
    bottom: Literal["first_token", "learned"] = Field(
        default="first_token",
        description="value of the empty stack: the first position, in language models and transductions <bos>, as in "
        "the paper (first_token); or a learned vector before it, which is not in the paper (learned)",
    )
    num_heads: Size = Field(
        default=1, description="number of stacks, each for d_model / num_heads numbers of the values"
    )


class StackTrans(Settings):
    """Small bounded stacks that are read over all cells (StackTrans, 2025)."""

    attention: Literal["stack_trans"]
    stack_embedding_size: Size = Field(default=64, description="size of the vectors of all stacks together")
    num_heads: Size = Field(default=4, description="number of stacks")
    depth: Size = Field(default=24, description="number of cells of a stack; items below the last one are lost")
    form: Literal["released", "paper"] = Field(
        default="released",
        description="as the authors' package, with a null cell and actions of the input; or as the paper, with actions "
        "of the pushed vector and the mask as a factor of the score",
    )
    read: Literal["after", "before"] = Field(
        default="after", description="read after the action of the same position; before: as the paper's indices say"
    )

    _check_num_heads = model_validator(mode="after")(_require_equal_parts)


class DepthStack(StackTrans):
    """StackTrans over depth."""

    attention: Literal["stack_trans"] = "stack_trans"
