"""Prepared folders that are small enough to be checked by hand, and a model whose probabilities are known."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from structattn.text.folders.prepared import PreparedFolder, open_prepared
from structattn.text.folders.writing import write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary

SYMBOLS = ("0", "1", "#")
TRAIN = [[3, 5, 3], [4, 5, 4], [3, 4, 5, 4, 3], [5], [4, 4, 5, 4, 4]]
VALID = [[3, 5, 3], [4, 4, 5, 4, 4], [5], [3, 5, 3]]


class TableModel(nn.Module):
    """Log-probabilities that depend on the last token alone, so that any string's can be added up by hand."""

    def __init__(self) -> None:
        super().__init__()
        table = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
        self.table = nn.Parameter(table.log_softmax(1))
        self.lengths: list[Tensor | None] = []

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        self.lengths.append(lengths)
        return self.table[tokens]

    def nats(self, string: list[int]) -> float:
        before, after = [1, *string], [*string, 2]
        return -sum(self.table[last, target - 2].item() for last, target in zip(before, after, strict=True))


@pytest.fixture
def table_model() -> TableModel:
    return TableModel()


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[..., PreparedFolder]:
    def write(
        kind: str = "formal_language",
        valid: list[list[int]] | None = None,
        exact: bool = True,
        valid_log_probabilities: list[float] | None = None,
    ) -> PreparedFolder:
        splits = {"train": TRAIN, "valid": VALID if valid is None else valid}
        exactly = {name: np.log([0.5] * len(split)) for name, split in splits.items()}
        if valid_log_probabilities:
            exactly["valid"] = np.array(valid_log_probabilities)
        formal = kind == "formal_language" and exact
        write_prepared(
            tmp_path / kind,
            kind=kind,
            vocabulary=Vocabulary.from_symbols(SYMBOLS),
            tokenizer={"level": "character"},
            splits=splits,
            log_probabilities=exactly if formal else None,
            extra={"number_of_lengths": {"train": 3, "valid": 3}} if formal else {},
        )
        return open_prepared(tmp_path / kind)

    return write
