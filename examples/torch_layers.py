"""Stacks in torch's own transformer: nn.TransformerEncoder learns to reverse strings.

    python examples/torch_layers.py

The inputs are the symbols of a string w, then as many blanks, at which the model gives w backwards. Strings of
different lengths are padded on the left. Afterwards it is tested on strings that are longer than those of training.
Takes some seconds.
"""

import torch
from torch import Tensor, nn

from structattn.attention import SelfAttention, SuperpositionStackAttention

BLANK, D = 2, 32


def batch_of(size: int, shortest: int, longest: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return inputs, targets, where targets count, and padding, each (size, 2 * longest)."""
    lengths = torch.randint(shortest, longest + 1, (size, 1))
    w = torch.randint(0, 2, (size, longest))
    place = torch.arange(2 * longest) - 2 * (longest - lengths)  # negative for padding
    inputs = torch.where(place < lengths, w.gather(1, place.clamp(0, longest - 1)), BLANK)
    targets = w.gather(1, (2 * lengths - 1 - place).clamp(0, longest - 1))
    return inputs, targets, place >= lengths, place < 0


class Reversal(nn.Module):
    """A transformer with stacks in the place of nn.MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(D, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        block.self_attn = SelfAttention(SuperpositionStackAttention(D, 16, num_heads=2))
        self.embedding = nn.Embedding(3, D)
        self.encoder = nn.TransformerEncoder(block, num_layers=2, enable_nested_tensor=False)
        self.output = nn.Linear(D, 2)

    def forward(self, inputs: Tensor, padding: Tensor) -> Tensor:
        """Return the logits."""
        return self.output(self.encoder(self.embedding(inputs), src_key_padding_mask=padding))


def main() -> None:
    """Train and test."""
    torch.manual_seed(0)
    model = Reversal()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for update in range(1, 301):
        inputs, targets, counts, padding = batch_of(32, 1, 8)
        loss = nn.functional.cross_entropy(model(inputs, padding)[counts], targets[counts])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 100 == 0:
            print(f"update {update}: loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        for longest in (8, 16):
            inputs, targets, counts, padding = batch_of(200, longest, longest)
            right = (model(inputs, padding).argmax(-1) == targets)[counts]
            print(f"length {longest}: {right.float().mean():.1%} of the symbols are right")


if __name__ == "__main__":
    main()
