"""Sentences per second of batched beam search, with incremental decoding and with recomputed prefixes.

    python benchmarks/decoding.py [--systems base hc-sa sh-x] [--sentences 1000] [--repeats 5] [--output FILE.json]

Random weights and random sentences, with lengths as in translated talks (about 28 tokens on average). Target lengths
are given: <eos> is forbidden before them and forced at them, so that all methods take the same number of steps.

- incremental: batched beam search that keeps the decoder state. Runs of the systems are interleaved; medians are
  reported, without a warm-up round.
- full prefix: the same search on the same batches, but each step runs the decoder on the whole prefixes.
- full prefix, batch size 1: the same, one sentence at a time.

All methods encode a source once, and run the decoder module by module; ``decoding_peers.py`` measures its accelerated
form. The last two are slow: they are measured once, for the first system only.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from result_file import write_results
from rich.console import Console
from rich.progress import track
from rich.table import Table

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
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder
from structattn.settings.transformer import EncoderDecoderSettings

SYSTEMS = Path(__file__).parents[1] / "tests" / "tasks" / "systems.yaml"
Pair = tuple[list[int], int]  # source ids with <eos>, target length


@dataclass(frozen=True)
class TimedState:
    """Decoder state, number of steps so far, and target lengths."""

    inner: Any
    steps: int
    lengths: torch.Tensor

    def select(self, indices: torch.Tensor) -> "TimedState":
        """Return the states of these rows."""
        return TimedState(self.inner.select(indices), self.steps, self.lengths.index_select(0, indices))


@dataclass(frozen=True)
class ForcedLengths:
    """Model wrapper that ends each translation at a given length."""

    model: Any

    def step(self, tokens: torch.Tensor, state: TimedState) -> tuple[torch.Tensor, TimedState]:
        """Return the model's logits with <eos> forbidden or forced."""
        logits, inner = self.model.step(tokens, state.inner)
        ends = state.lengths == state.steps + 1
        logits[:, 0] = torch.where(ends, 1e4, -torch.inf)
        return logits, TimedState(inner, state.steps + 1, state.lengths)


@dataclass(frozen=True)
class PrefixState:
    """Encoded source and target prefix."""

    memory: torch.Tensor
    lengths: torch.Tensor
    tokens: torch.Tensor

    def select(self, indices: torch.Tensor) -> "PrefixState":
        """Return the states of these rows."""
        return PrefixState(*(x.index_select(0, indices) for x in (self.memory, self.lengths, self.tokens)))


@dataclass(frozen=True)
class FullPrefixDecoder:
    """Decoder without a state: recomputes the whole prefix for every token."""

    model: EncoderDecoder

    def step(self, tokens: torch.Tensor, state: PrefixState) -> tuple[torch.Tensor, PrefixState]:
        """Return the logits after the last token."""
        prefix = torch.cat([state.tokens, tokens[:, None]], 1)
        model = self.model
        x = model.decoder(model.target(prefix), None, state.memory, state.lengths)[:, -1]
        logits = torch.nn.functional.linear(x, model.target.class_embeddings())
        return logits, PrefixState(state.memory, state.lengths, prefix)


def incremental(model: EncoderDecoder, source: torch.Tensor, lengths: torch.Tensor) -> tuple[Any, Any]:
    return model, start_translation(model, source, lengths).state


@torch.no_grad()
def full_prefix(model: EncoderDecoder, source: torch.Tensor, lengths: torch.Tensor) -> tuple[Any, Any]:
    empty = source.new_zeros(len(source), 0)
    return FullPrefixDecoder(model), PrefixState(model.encode(source, lengths), lengths, empty)


Method = Callable[..., tuple[Any, Any]]


def translate(model: EncoderDecoder, pairs: list[Pair], method: Method, beam: int, tokens: int) -> list[Hypothesis]:
    """Return the best hypothesis of each sentence."""

    def decode(batch: list[Pair]) -> list[Hypothesis]:
        source, lengths = pad_sequences([ids for ids, _ in batch])
        targets = torch.tensor([length for _, length in batch])
        stepper, state = method(model, source, lengths)
        start = DecodingStart(TimedState(state, 0, targets), torch.ones_like(targets))
        return [best for (best,) in beam_search(ForcedLengths(stepper), start, targets, BeamSearch(beam))]

    return map_in_batches(pairs, [max(len(ids), length) for ids, length in pairs], tokens, decode)


def sentences(count: int, vocabulary: int) -> list[Pair]:
    """Return random pairs; source lengths follow a gamma distribution (mean 28, deviation 16), targets are similar."""
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
    return build_encoder_decoder(settings, VocabularySpec(vocabulary), VocabularySpec(vocabulary)).eval()


def timed(
    model: EncoderDecoder, pairs: list[Pair], method: Method, beam: int, tokens: int
) -> tuple[float, list[list[int]]]:
    """Return sentences per second, and the translations."""
    start = time.perf_counter()
    found = translate(model, pairs, method, beam, tokens)
    seconds = time.perf_counter() - start
    assert all(len(text.tokens) == target for text, (_, target) in zip(found, pairs, strict=True))
    return len(pairs) / seconds, [list(text.tokens) for text in found]


def measured(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure each system, and the slow methods for the first one."""
    models = [built(name, arguments.vocabulary) for name in arguments.systems]
    pairs = sentences(arguments.sentences, arguments.vocabulary)
    speeds: list[list[float]] = [[] for _ in models]
    for _ in track(range(arguments.repeats + 1), "incremental"):
        for model, found in zip(models, speeds, strict=True):
            found.append(timed(model, pairs, incremental, arguments.beam, arguments.tokens)[0])
    rows = [
        {"system": name, "method": "incremental", "sentences/s": statistics.median(found[1:]), "all": found[1:]}
        for name, found in zip(arguments.systems, speeds, strict=True)
    ]
    reference = timed(models[0], pairs, incremental, arguments.beam, arguments.tokens)[1]
    slow = [("full prefix", arguments.tokens), ("full prefix, batch size 1", 1)]
    for method, tokens in track(slow, "slow methods"):
        speed, texts = timed(models[0], pairs, full_prefix, arguments.beam, tokens)
        same = sum(a == b for a, b in zip(texts, reference, strict=True)) / len(pairs)
        rows.append(
            {"system": arguments.systems[0], "method": method, "sentences/s": speed, "identical translations": same}
        )
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
    table = Table("system", "method", "sentences/s", "first / this", "identical translations")
    for row in rows:
        speed, same = row["sentences/s"], row.get("identical translations")
        ratio = rows[0]["sentences/s"] / speed
        table.add_row(
            row["system"], row["method"], f"{speed:.2f}", f"{ratio:.2f}", "" if same is None else f"{same:.1%}"
        )
    Console().print(table)
    about = {key: value for key, value in vars(arguments).items() if key != "output"}
    about |= {"torch": torch.__version__, "processor": platform.machine(), "threads": torch.get_num_threads()}
    write_results(about | {"results": rows}, arguments.output)


if __name__ == "__main__":
    main()
