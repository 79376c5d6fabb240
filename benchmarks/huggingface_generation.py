"""Time of a generated token in transformers, with a cache and without, after texts of several lengths.

    python benchmarks/huggingface_generation.py [--tokens 16] [--output FILE.json]

A random Llama (d 128, 2 layers, 4 heads, 512 hidden units, 1,024 ids) without stacks and with each stack after its
first block, and language models of this package of the same sizes whose second layer is each stack, as exported.
With a cache: the median of so many tokens after the first, which catches up with the text. Without: that of a forward
pass over text and new tokens. One text at a time, float32, processor time of one thread.
"""

import argparse
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from result_file import write_results
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from structattn.interop.huggingface import StructattnConfig, StructattnForCausalLM, add_stack_attention
from structattn.support.devices import processor_name

IDS, LENGTHS = 1024, (64, 512)
STACKS = {
    "stack pointer": "stack_pointer",
    "superposition": "superposition-32",
    "nondeterministic": "nondeterministic-2-3-5",
}
SIZES = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
OWN_SIZES = {"kind": "transformer", "d_model": 128, "d_ff": 512, "num_heads": 4}


def models() -> dict[str, PreTrainedModel]:
    """Return the models by name."""
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=IDS, max_position_embeddings=1024, **SIZES)).eval()
    found: dict[str, Any] = {"Llama": llama}
    for name, stack in STACKS.items():
        found[f"Llama + {name}"] = add_stack_attention(llama, stack, layers=[0])
    for name, stack in STACKS.items():
        layers = f"1.1+{stack}" if name == "stack pointer" else f"1.{stack}"
        config = StructattnConfig(settings={**OWN_SIZES, "layers": layers}, vocab_size=IDS)
        found[f"exported, {name}"] = StructattnForCausalLM(config).eval()
    return found


def timed(call: Any) -> tuple[float, Any]:
    """Return the seconds of a call and its value."""
    start = time.process_time()
    value = call()
    return time.process_time() - start, value


@torch.inference_mode()
def measure(model: PreTrainedModel, length: int, tokens: int) -> dict[str, float]:
    """Return milliseconds: of the text, of the first token after it, of each later one, and of one without a cache."""
    ids = torch.randint(3, IDS, (1, length + tokens))
    prompt, out = timed(lambda: model(ids[:, :length], use_cache=True))
    cache, seconds = out.past_key_values, []
    for t in range(length, length + tokens):
        second, _ = timed(lambda t=t: model(ids[:, t : t + 1], past_key_values=cache, use_cache=True))
        seconds.append(second)
    whole = [timed(lambda: model(ids[:, : length + 1], use_cache=False))[0] for _ in range(5)]
    values = {"text": prompt, "first": seconds[0], "cached": statistics.median(seconds[1:])}
    return {name: 1000 * value for name, value in {**values, "uncached": statistics.median(whole)}.items()}


def table_of(rows: dict[str, dict[str, dict[str, float]]]) -> Table:
    """Return the milliseconds of a token."""
    columns = [f"{kind}, {length}" for kind in ("cached", "uncached", "first") for length in LENGTHS]
    table = Table("ms a token", *columns)
    for name, by_length in rows.items():
        cells = [by_length[str(n)][kind] for kind in ("cached", "uncached", "first") for n in LENGTHS]
        table.add_row(name, *(f"{cell:.1f}" for cell in cells))
    return table


def main() -> None:
    """Measure all models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: dict[str, Any] = {}
    for name, model in models().items():
        measure(model, 16, 4)
        rows[name] = {str(length): measure(model, length, options.tokens) for length in LENGTHS}
    Console().print(table_of(rows))
    card = {"date": datetime.now(UTC).date().isoformat(), "processor": processor_name()}
    write_results(card | {"milliseconds": rows}, options.output)


if __name__ == "__main__":
    main()
