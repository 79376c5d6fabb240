"""Sentences per second of batched beam search, with states that are kept and with prefixes that are read again.

    python benchmarks/decoding.py [--systems base hc-sa sh-x] [--sentences 1000] [--repeats 5] [--output FILE.json]

Random weights, random sentences, lengths like those of translated talks (about 28 tokens on average). Target lengths
are given: <eos> is forbidden before them and forced at them, so that all ways do the same number of steps.

- states: batched beam search over the one-step door. The systems take turns; medians, after a round that is not timed.
- naive: the same search over the same batches, but at each step the decoder reads the whole prefix of each hypothesis.
- loop: as naive, one sentence after the other.

The last two encode a source once, as states does. They are slow: once, and for the first system only.
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
from rich.progress import track
from rich.table import Table

from structattn.building.models import build_encoder_decoder
from structattn.building.words import Words
from structattn.decoding import (
    BeamSearch,
    DecodingStart,
    Hypothesis,
    beam_search,
    map_in_batches,
    pad_sequences,
    start_translation,
)
from structattn.models import EncoderDecoder
from structattn.settings.encoder_decoder import EncoderDecoderSettings

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
        logits = torch.nn.functional.linear(x, model.target.class_embeddings())
        return logits, PrefixState(state.memory, state.lengths, read)


def with_states(model: EncoderDecoder, source: torch.Tensor, lengths: torch.Tensor) -> tuple[Any, Any]:
    return model, start_translation(model, source, lengths).state


@torch.no_grad()
def with_prefixes(model: EncoderDecoder, source: torch.Tensor, lengths: torch.Tensor) -> tuple[Any, Any]:
    nothing = source.new_zeros(len(source), 0)
    return Naive(model), PrefixState(model.encode(source, lengths), lengths, nothing)


Way = Callable[..., tuple[Any, Any]]


def translate(model: EncoderDecoder, pairs: list[Pair], way: Way, beam: int, tokens: int) -> list[Hypothesis]:
    """The best hypothesis of each sentence."""

    def decode(batch: list[Pair]) -> list[Hypothesis]:
        source, lengths = pad_sequences([ids for ids, _ in batch])
        targets = torch.tensor([length for _, length in batch])
        stepper, state = way(model, source, lengths)
        start = DecodingStart(TimedState(state, 0, targets), torch.ones_like(targets))
        return [best for (best,) in beam_search(OfGivenLengths(stepper), start, targets, BeamSearch(beam))]

    return map_in_batches(pairs, [max(len(ids), length) for ids, length in pairs], tokens, decode)


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
    return build_encoder_decoder(settings, Words(vocabulary), Words(vocabulary)).eval()


def timed(model: EncoderDecoder, pairs: list[Pair], way: Way, beam: int, tokens: int) -> tuple[float, list[list[int]]]:
    """Sentences per second, and the texts."""
    start = time.perf_counter()
    found = translate(model, pairs, way, beam, tokens)
    seconds = time.perf_counter() - start
    assert all(len(text.tokens) == target for text, (_, target) in zip(found, pairs, strict=True))
    return len(pairs) / seconds, [list(text.tokens) for text in found]


def measured(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Sentences per second of each system, and of the slow ways for the first."""
    models = [built(name, arguments.vocabulary) for name in arguments.systems]
    pairs = sentences(arguments.sentences, arguments.vocabulary)
    speeds: list[list[float]] = [[] for _ in models]
    for _ in track(range(arguments.repeats + 1), "states"):
        for model, found in zip(models, speeds, strict=True):
            found.append(timed(model, pairs, with_states, arguments.beam, arguments.tokens)[0])
    rows = [
        {"system": name, "way": "states", "sentences/s": statistics.median(found[1:]), "all": found[1:]}
        for name, found in zip(arguments.systems, speeds, strict=True)
    ]
    reference = timed(models[0], pairs, with_states, arguments.beam, arguments.tokens)[1]
    for way, tokens in track([("naive", arguments.tokens), ("loop", 1)], "slow ways"):
        speed, texts = timed(models[0], pairs, with_prefixes, arguments.beam, tokens)
        same = sum(a == b for a, b in zip(texts, reference, strict=True)) / len(pairs)
        rows.append({"system": arguments.systems[0], "way": way, "sentences/s": speed, "same texts": same})
    return rows


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
    rows = measured(arguments)
    table = Table("system", "way", "sentences/s", "first / this", "same texts")
    for row in rows:
        speed, same = row["sentences/s"], row.get("same texts")
        ratio = rows[0]["sentences/s"] / speed
        table.add_row(row["system"], row["way"], f"{speed:.2f}", f"{ratio:.2f}", "" if same is None else f"{same:.1%}")
    Console().print(table)
    if arguments.output:
        about = {key: value for key, value in vars(arguments).items() if key != "output"}
        about |= {"torch": torch.__version__, "processor": platform.machine(), "threads": torch.get_num_threads()}
        arguments.output.write_text(json.dumps(about | {"results": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
