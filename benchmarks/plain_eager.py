"""Training step of structattn compared with the same step in plain eager PyTorch: one thread, processor time.

    python benchmarks/plain_eager.py [--output FILE.json]

The model is the transformer of DuSell & Chiang (2024, section 6): width 32, 5 layers, 4 heads, 64 hidden units,
dropout 0.1 everywhere; ten strings of 60 symbols; clipping at 5, Adam. The plain model uses torch's own
modules without optimization: nn.MultiheadAttention, F.dropout, nn.LayerNorm, torch.optim.Adam.
"""

import math
import statistics
import tempfile
from pathlib import Path

import torch
from result_file import heading, parse_output, print_and_write
from torch import nn
from torch.nn import functional as F
from training_steps import interleaved, step_of_model

WIDTH, HEADS, HIDDEN, LAYERS, RATE = 32, 4, 64, 5, 0.1
LENGTH, STRINGS, CLASSES = 60, 10, 4
REPEATS = 101


class PlainBlock(nn.Module):
    """Pre-norm transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=RATE, batch_first=True)
        self.hidden, self.output = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Apply attention, then the feed-forward network."""
        h = self.attention_norm(x)
        y, _ = self.attention(h, h, h, attn_mask=mask, need_weights=False, is_causal=True)
        x = x + F.dropout(y, RATE, self.training)
        h = F.dropout(F.relu(self.hidden(self.feedforward_norm(x))), RATE, self.training)
        return x + F.dropout(self.output(h), RATE, self.training)


class PlainModel(nn.Module):
    """Causal language model with sinusoidal positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, WIDTH)
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(LAYERS))
        self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        time_, wave = torch.arange(LENGTH + 1.0)[:, None], torch.arange(0, WIDTH, 2)
        angles = time_ / 10000 ** (wave / WIDTH)
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH + 1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each next symbol."""
        x = F.dropout(self.embedding(tokens) * math.sqrt(WIDTH) + self.positions, RATE, self.training)
        for block in self.blocks:
            x = block(x, self.mask)
        return self.output(self.norm(x))


def plain_step():
    """Return a function that runs one training step of the plain model."""
    torch.manual_seed(1)
    model = PlainModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    tokens, targets = (torch.randint(CLASSES, (STRINGS, LENGTH + 1)) for _ in range(2))

    def step() -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="sum") / STRINGS
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if not math.isfinite(loss.item()):
            raise RuntimeError("not finite")

    return step


def main() -> None:
    """Measure both in alternation, and print the ratio."""
    output = parse_output(__doc__)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        works = {"plain": plain_step(), "ours": step_of_model("Tf", LENGTH, Path(folder))}
        seconds = interleaved(works, REPEATS, "training steps")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratio = statistics.median(seconds["ours"] / seconds["plain"])
    result = {
        **heading("python benchmarks/plain_eager.py"),
        "torch": torch.__version__,
        "seconds": medians,
        "ours_over_plain": ratio,
    }
    print_and_write(result, output)


if __name__ == "__main__":
    main()
