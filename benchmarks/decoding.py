"""Sentences per second of batched beam search, with states that are kept and with prefixes that are read again.

    python benchmarks/decoding.py [--systems base hc-sa sh-x] [--sentences 1000] [--repeats 5] [--output FILE.json]

Random weights, random sentences, lengths like those of translated talks (about 28 tokens on average). Target lengths
are given: <eos> is forbidden before them and forced at them, so that all ways do the same number of steps. The ways
take turns; medians are reported, after one round that is not timed. The naive way is the same beam search over the same
batches, sources encoded once, but at each step the decoder reads the whole prefix of each hypothesis.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console
from rich.table import Table

from structattn.decoding import BeamSearch, Hypothesis, Start, beam_search, in_batches, padded, translation
from structattn.models import EncoderDecoder
from structattn.settings.encoder_decoder import EncoderDecoderSettings
from structattn.tasks.build import build_encoder_decoder

SYSTEMS = Path(__file__).parents[1] / "tests" / "tasks" / "systems.yaml"
Pair = tuple[list[int], int]  # a source with its <eos>, and the length of its target


@dataclass(frozen=True)
class TimedState:
    """A state, how many steps were taken, and how many tokens each target has."""

    inner: Any
    steps: int
    lengths: torch.Tensor

    def select(self, indices: torch.Tensor) -> "TimedState":
        """Some of them."""
        return TimedState(self.inner.select(indices), self.steps, self.lengths.index_select(0, indices))


@dataclass(frozen=True)
class OfGivenLengths:
    """A model that ends each text where it is told to."""

    model: Any

    def step(self, tokens: torch.Tensor, state: TimedState) -> tuple[torch.Tensor, TimedState]:
        """The model's logits, <eos> forbidden or forced."""
        logits, inner = self.model.step(tokens, state.inner)
        ends = state.lengths == state.steps + 1
        logits[:, 0] = torch.where(ends, 1e4, -torch.inf)
        return logits, TimedState(inner, state.steps + 1, state.lengths)


@dataclass(frozen=True)
class PrefixState:
    """An encoded source, and all that was read of the target."""

    memory: torch.Tensor
    lengths: torch.Tensor
    tokens: torch.Tensor

    def select(self, indices: torch.Tensor) -> "PrefixState":
        """Some of them."""
        return PrefixState(*(x.index_select(0, indices) for x in (self.memory, self.lengths, self.tokens)))


@dataclass(frozen=True)
class Naive:
    """The same model without states: it reads the whole prefix for every token."""

    model: EncoderDecoder

    def step(self, tokens: torch.Tensor, state: PrefixState) -> tuple[torch.Tensor, PrefixState]:
        """Logits after the last of all tokens."""
        read = torch.cat([state.tokens, tokens[:, None]], 1)
        model = self.model
        x = model.decoder(model.target(read), None, state.memory, state.lengths)[:, -1]
        return torch.nn.functional.linear(x, model.target.class_rows()), PrefixState(state.memory, state.lengths, read)


def with_states(model: EncoderDecoder, source: torch.Tensor, lengths: torch.Tensor) -> tuple[Any, Any]:
    return model, translation(model, source, lengths).state


@torch.no_grad()
def with_prefixes(model: EncoderDecoder, source: torch.Tensor, lengths: torch.Tensor) -> tuple[Any, Any]:
    nothing = source.new_zeros(len(source), 0)
    return Naive(model), PrefixState(model.encode(source, lengths), lengths, nothing)


WAYS: dict[str, Callable[..., tuple[Any, Any]]] = {"states": with_states, "naive": with_prefixes}


def translate(model: EncoderDecoder, pairs: list[Pair], way: str, beam: int, tokens: int) -> list[Hypothesis]:
    """The best hypothesis of each sentence."""

    def decode(batch: list[Pair]) -> list[Hypothesis]:
        source, lengths = padded([ids for ids, _ in batch])
        targets = torch.tensor([length for _, length in batch])
        stepper, state = WAYS[way](model, source, lengths)
        start = Start(TimedState(state, 0, targets), torch.ones_like(targets))
        return [best for (best,) in beam_search(OfGivenLengths(stepper), start, targets, BeamSearch(beam))]

    return in_batches(pairs, [max(len(ids), length) for ids, length in pairs], tokens, decode)


def sentences(count: int, vocabulary: int) -> list[Pair]:
    """Sources of lengths from a gamma distribution of mean 28 and deviation 16; targets are about as long."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch._standard_gamma(torch.full((count,), 3.0), generator=generator) * 28 / 3
    lengths = drawn.long().clamp(2, 150)
    ratios = 1 + 0.15 * torch.randn(count, generator=generator)
    targets = (lengths * ratios).long().clamp(min=2)
    return [
        ([*torch.randint(3, vocabulary, (length - 1,), generator=generator).tolist(), 2], target)
        for length, target in zip(lengths.tolist(), targets.tolist(), strict=True)
    ]


def built(name: str, vocabulary: int) -> EncoderDecoder:
    torch.manual_seed(0)
    settings = EncoderDecoderSettings.model_validate(yaml.safe_load(SYSTEMS.read_text())[name])
    return build_encoder_decoder(settings, vocabulary, vocabulary).eval()


def measured(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Sentences per second of each way."""
    model, pairs = built(name, arguments.vocabulary), sentences(arguments.sentences, arguments.vocabulary)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    texts = {}
    for _ in range(arguments.repeats + 1):
        for way, taken in seconds.items():
            start = time.perf_counter()
            texts[way] = translate(model, pairs, way, arguments.beam, arguments.tokens)
            taken.append(time.perf_counter() - start)
    assert all(len(text.tokens) == target for text, (_, target) in zip(texts["states"], pairs, strict=True))
    same = sum(a.tokens == b.tokens for a, b in zip(texts["states"], texts["naive"], strict=True))
    speeds = {way: len(pairs) / statistics.median(taken[1:]) for way, taken in seconds.items()}
    return {"system": name, **speeds, "ratio": speeds["states"] / speeds["naive"], "same texts": same / len(pairs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", nargs="+", default=["base", "hc-sa", "sh-x"])
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=2048, help="padded size of a batch, beam not counted")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = [measured(name, arguments) for name in arguments.systems]
    table = Table("system", "sentences/s", "naive", "ratio", "same texts")
    for row in rows:
        figures = (f"{row['states']:.2f}", f"{row['naive']:.2f}", f"{row['ratio']:.1f}", f"{row['same texts']:.1%}")
        table.add_row(row["system"], *figures)
    Console().print(table)
    if arguments.output:
        about = {key: value for key, value in vars(arguments).items() if key != "output"}
        about |= {"torch": torch.__version__, "processor": platform.machine(), "threads": torch.get_num_threads()}
        arguments.output.write_text(json.dumps(about | {"results": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
