"""Whether one layer of gated DeltaProduct tracks the permutations of three elements, by its number of steps per token.

    python benchmarks/state_tracking.py --seeds 1 2 --output results.json

Siems et al. (2025): one layer needs m = 2 for S3. Words of random elements of S3; at each position the product so
far is predicted. Trained on words of at most 24 elements, short ones first; scored at positions 1 to 24 and 25 to 128
of new words. No gate, no convolution, no feed-forward sublayer, d = 32, two heads. About a minute of one thread for
each model.
"""

import argparse
import json
from itertools import permutations
from pathlib import Path

import torch
from result_file import write_results
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import DeltaProductAttention
from structattn.models import Block, Layers

ELEMENTS = list(permutations(range(3)))
PRODUCTS = torch.tensor([[ELEMENTS.index(tuple(h[i] for i in g)) for h in ELEMENTS] for g in ELEMENTS])
D_MODEL, NUM_HEADS, BATCH, TRAINED, TESTED = 32, 2, 32, 24, 128
UPDATES, GROWTH = 4_000, 100  # words grow by two elements every 100 updates
LEARNING_RATE, MAX_GRAD_NORM, TEST_WORDS = 0.01, 1.0, 256


def words(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return words of elements and the products of their prefixes, each (count, length)."""
    elements = torch.randint(len(ELEMENTS), (count, length), generator=generator)
    product, products = torch.zeros(count, dtype=torch.int64), []
    for element in elements.unbind(1):
        product = PRODUCTS[product, element]
        products.append(product)
    return elements, torch.stack(products, 1)


def model_of(num_householder: int, negative_eigenvalues: bool) -> nn.Module:
    """Return embedding, one layer and output."""
    layer = DeltaProductAttention(
        D_MODEL,
        NUM_HEADS,
        num_householder,
        gate=False,
        negative_eigenvalues=negative_eigenvalues,
        convolution_size=0,
    )
    layers = Layers([Block(D_MODEL, layer)], nn.LayerNorm(D_MODEL))
    return nn.Sequential(nn.Embedding(len(ELEMENTS), D_MODEL), layers, nn.Linear(D_MODEL, len(ELEMENTS)))


def trained(num_householder: int, negative_eigenvalues: bool, seed: int) -> dict[str, float]:
    """Train a model; return the shares of products that it predicts at trained and at later positions."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = model_of(num_householder, negative_eigenvalues)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, UPDATES)
    for update in range(UPDATES):
        elements, products = words(BATCH, min(TRAINED, 3 + 2 * (update // GROWTH)), generator)
        loss = F.cross_entropy(model(elements).flatten(0, 1), products.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        elements, products = words(TEST_WORDS, TESTED, torch.Generator().manual_seed(0))
        correct = (model(elements).argmax(-1) == products).double()
    parts = {"trained_positions": correct[:, :TRAINED], "later_positions": correct[:, TRAINED:]}
    return {name: float(part.mean()) for name, part in parts.items()}


def main() -> None:
    """Train all models, and print and write what they reach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in arguments.seeds:
        for steps, negative in ((2, True), (1, True), (2, False)):
            scores = trained(steps, negative, seed)
            rows.append({"num_householder": steps, "negative_eigenvalues": negative, "seed": seed, **scores})
            print(json.dumps(rows[-1]), flush=True)
            write_results(rows, arguments.output)


if __name__ == "__main__":
    main()
