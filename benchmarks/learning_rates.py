"""Which learning rate does a bare layer need? One layer between an embedding and an output, on strings of Dyck-2.

    python benchmarks/learning_rates.py [--write]

The model is ``output(x + layer(x))``, without norm, dropout or feed-forward sublayer, trained by Adam at a constant
rate. Prints, for each layer and rate, the validation cross-entropy minus its lower bound in nats per token, of each
seed; ``--write`` stores it in benchmarks/results/learning_rates.json.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from result_file import write_results
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import NondeterministicStackAttention, StackPointerAttention, SuperpositionStackAttention
from structattn.support.special_tokens import BOS, EOS, PAD
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.language_modeling.evaluate import split_lower_bound
from structattn.text.folders.prepared import PreparedFolder, open_prepared
from structattn.text.folders.sequences import Sequences

D_MODEL, BATCH_SIZE, UPDATES, SEEDS = 32, 10, 500, (1, 2, 3)
RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "superposition, m = 16": lambda: SuperpositionStackAttention(D_MODEL, stack_embedding_size=16),
    "nondeterministic, 2-3-5": lambda: NondeterministicStackAttention(D_MODEL, 2, 3, 5),
    "stack pointers": lambda: StackPointerAttention(D_MODEL),
}
RESULTS = Path(__file__).parent / "results/learning_rates.json"


class Bare(nn.Module):
    """A layer between an embedding and an output, with a residual connection."""

    def __init__(self, layer: nn.Module, num_ids: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_ids, D_MODEL)
        self.layer = layer
        self.output = nn.Linear(D_MODEL, num_ids)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits, (batch, time, id)."""
        x = self.embedding(ids)
        return self.output(x + self.layer(x))


def batch_of(sequences: Sequences, indices: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, (batch, time); padding is at the end."""
    strings = [sequences[int(index)].tolist() for index in indices]
    longest = 1 + max(map(len, strings))
    rows = [[BOS, *string, EOS] + [PAD] * (longest - 1 - len(string)) for string in strings]
    ids = torch.tensor(rows)
    return ids[:, :-1], ids[:, 1:]


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction=reduction)


def difference(make_layer: Callable[[], nn.Module], rate: float, seed: int, data: PreparedFolder) -> float:
    """Train one model; return its validation cross-entropy minus the bound."""
    torch.manual_seed(seed)
    drawn = np.random.default_rng(seed)
    model = Bare(make_layer(), len(data.vocabulary.symbols))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    train = data.split("train")
    for _ in range(UPDATES):
        optimizer.zero_grad()
        loss_of(model, *batch_of(train, drawn.integers(len(train), size=BATCH_SIZE)), "mean").backward()
        optimizer.step()
    valid = data.split("valid")
    bound = split_lower_bound(data, "valid")
    assert bound is not None
    with torch.no_grad():
        total = loss_of(model, *batch_of(valid, np.arange(len(valid))), "sum")
    return float(total) / valid.num_targets - bound


def main() -> None:
    """Train every layer at every rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "dyck"
        sizes = FormalLanguageSizes(5_000, 500, test_per_length=1, train_lengths=(10, 30), test_lengths=(10, 30))
        prepare_formal_language(folder, "dyck", seed=1, sizes=sizes)
        data = open_prepared(folder)
        for layer, make_layer in LAYERS.items():
            for rate in RATES:
                found = [difference(make_layer, rate, seed, data) for seed in SEEDS]
                rows.append({"layer": layer, "rate": rate, "differences": found})
                print(json.dumps(rows[-1]), flush=True)
    result = {"command": "python benchmarks/learning_rates.py", "updates": UPDATES, "rows": rows}
    write_results(result, RESULTS if arguments.write else None)


if __name__ == "__main__":
    main()
