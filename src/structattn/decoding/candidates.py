"""Decoding restricted to candidates: the tokens that may occur in the text of each sentence."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.decoding.stepper import DecoderState, DecodingStart, Stepper
from structattn.operators.linear.selected import select_outputs
from structattn.support.special_tokens import class_of, id_of


@dataclass(frozen=True)
class Restriction:
    """The classes that may follow for each row of a state: an immutable value.

    Args:
        lists: the classes of each sentence in ascending order, then negative numbers.
        list_of_row: the list of each row.
    """

    lists: Int[Tensor, "sentences candidates"]
    list_of_row: Int[Tensor, " rows"]

    @staticmethod
    def of(start: DecodingStart) -> "Restriction | None":
        """Return the restriction to the candidates of a start; None without any."""
        if start.candidates is None:
            return None
        return Restriction(class_of(start.candidates), torch.arange(len(start.tokens), device=start.tokens.device))

    def select(self, indices: Int[Tensor, " selected"]) -> "Restriction":
        """Return the restriction of some rows, in a new order."""
        return replace(self, list_of_row=self.list_of_row.index_select(0, indices))


@dataclass(frozen=True)
class RestrictedState:
    """The state of a model, and the candidates of its rows."""

    state: DecoderState
    restriction: Restriction

    def select(self, indices: Int[Tensor, " selected"]) -> "RestrictedState":
        """Return the states of some members of the batch, in a new order."""
        return RestrictedState(self.state.select(indices), self.restriction.select(indices))


@dataclass(frozen=True)
class RestrictedStepper:
    """A ``Stepper`` that returns the model's logits of the candidates only, -inf in the columns after the last one."""

    model: Stepper

    def step(
        self, tokens: Int[Tensor, " batch"], state: RestrictedState
    ) -> tuple[Float[Tensor, "batch candidates"], RestrictedState]:
        """Take one more token of each sentence; return the logits of its candidates and the state."""
        logits, after = self.model.step(tokens, state.state)
        restriction = state.restriction
        return select_outputs(logits, restriction.lists, restriction.list_of_row), RestrictedState(after, restriction)


def restrict(model: Stepper, start: DecodingStart) -> tuple[Stepper, DecodingStart]:
    """Return a model whose columns of logits are the candidates of its start; the arguments if it has none."""
    restriction = Restriction.of(start)
    if restriction is None:
        return model, start
    return RestrictedStepper(model), replace(start, state=RestrictedState(start.state, restriction))


@dataclass(frozen=True)
class Columns:
    """The classes for which the columns of logits stand in each sentence.

    Args:
        lists: as in ``Restriction``; None: column c stands for class c.
    """

    lists: Int[Tensor, "open candidates"] | None

    @staticmethod
    def of(start: DecodingStart) -> "Columns":
        """Return the columns of a start's logits."""
        return Columns(None if start.candidates is None else class_of(start.candidates))

    def select(self, sentences: Int[Tensor, " selected"]) -> "Columns":
        """Return the columns of some sentences."""
        return self if self.lists is None else Columns(self.lists[sentences])

    def classes(self, columns: Int[Tensor, "open chosen"]) -> Int[Tensor, "open chosen"]:
        """Return the classes of some columns of each sentence."""
        return columns if self.lists is None else self.lists.gather(1, columns)

    def of_classes(self, classes: Int[Tensor, " open"], num_columns: int) -> Int[Tensor, " open"]:
        """Return the column of a class in each sentence, of so many columns; negative where the class is.

        Raises:
            ValueError: a class is not in the vocabulary or not among the candidates of its sentence.
        """
        if self.lists is None:
            largest = id_of(int(classes.max()))
            if largest >= id_of(num_columns):
                raise ValueError(
                    f"a prefix has token {largest}; the vocabulary has {id_of(num_columns)}, expected one below that"
                )
            return classes
        is_here = (self.lists == classes[:, None]) & (classes >= 0)[:, None]
        if not torch.equal(is_here.any(1), classes >= 0):
            raise ValueError("a prefix has a token that is not among the candidates of its sentence")
        return torch.where(classes < 0, classes, is_here.int().argmax(1))
