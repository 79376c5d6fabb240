"""Texts as the inputs of a language model: sentences after <bos>, lines of a stream after <eos>."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from structattn.models.protocols import CausalModel
from structattn.settings.embeddings import max_positions
from structattn.support.special_tokens import BOS, EOS
from structattn.tasks.loaded import LoadedRun, cannot, require_positions
from structattn.text.lines import ids_of_lines, is_stream

_DATA = ("formal_language", "sentences", "stream")


EncodedText: TypeAlias = tuple[int, ...]
"""The id before the first token of a text, and its own; lines of a stream but the last end in <eos>."""


@dataclass(frozen=True)
class TextEncoder:
    """Encodes texts for the language model of a run, and decodes its continuations.

    Args:
        run: of any task that trains a causal model on strings of a formal language or on text.
        action: what the texts are for, in the message about another task.

    Raises:
        UsageError: the model or the data are of another kind.
    """

    run: LoadedRun
    action: str = "score texts"

    def __post_init__(self) -> None:
        if self.run.prepared.kind not in _DATA or not isinstance(self.run.model, CausalModel):
            raise cannot(self.run, self.action, "a causal language model of text or of a formal language")

    @property
    def model(self) -> CausalModel:
        """The model of the run, accelerated."""
        model = self.run.accelerated
        assert isinstance(model, CausalModel)  # the registry of tasks says so
        return model

    @property
    def max_tokens(self) -> int | None:
        """The maximal number of tokens of a text, <eos> not counted; None: unbounded."""
        positions = max_positions(self.run.settings.model)
        return None if positions is None else positions - 1

    def encode(self, text: str, path: Path, number: int) -> EncodedText:
        """Return the ids of a text; in a stream, it may have several lines.

        Raises:
            DataError: the text cannot be encoded, or is too long for the model.
        """
        start, ids = EOS if is_stream(self.run.settings) else BOS, list[int]()
        *before, last = ids_of_lines(self.run.prepared.tokenizer, self.run.settings, text, path, number)
        for line in before:
            ids += [start, *line]
        ids.append(start)
        encoded = (*ids, *last)
        require_positions(self.run, len(encoded), number, path)
        return encoded

    def decode(self, text: EncodedText, continuation: tuple[int, ...] = ()) -> str:
        """Return a text with its continuation, whose first line is decoded together with the last one of the text."""
        lines: list[list[int]] = [[]]
        for token in (*text[1:], *continuation):
            if token == EOS:
                lines.append([])
            else:
                lines[-1].append(token)
        return "\n".join(map(self.run.prepared.tokenizer.decode, lines))
