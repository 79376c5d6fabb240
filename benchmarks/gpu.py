"""Speed, memory and error of the stack operators on a GPU, of training steps and of decoding with them.

    python benchmarks/gpu.py [--output FILE.json] [--only PART]

One card, float32 unless said, at most ten minutes. The kernels are first compared with their reference
implementations; nothing is measured if one is wrong. Times are medians over synchronized runs, by the GPU's own events.
What does not fit into memory, or cannot be captured in a CUDA graph, is recorded with the reason. To compare two
versions of the package, run this file with each of them first in PYTHONPATH, on the same card. ``--only`` measures one
part anew, in a file of the same card and versions.
"""

import argparse
import importlib.metadata
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from gpu_cases import OPERATORS, OTHER_OPERATORS, Call
from result_file import heading
from torch import Tensor
from torch.nn import functional as F

import structattn
from structattn.cli.self_check import all_outcomes
from structattn.models import class_of
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_language_model
from structattn.operators.common.gpu import interpreted
from structattn.settings.transformer import LanguageModelSettings

RESULTS = Path(__file__).parent / "results"
LENGTHS, BATCHES = (128, 256, 512, 1024), (32, 256)
REPEATS, SECONDS = 10, 0.3  # a measurement ends after as many runs, or after the seconds
# The language models of DuSell & Chiang (2024, section 7): 5 layers, 23,833 classes; here with the published grammar
# sizes of section 6 as well.
MODELS = {
    "Tf": "5",
    "Tf+Sup": "2.superposition-{width}.2",
    "Tf+Nd 2-3-5": "2.nondeterministic-2-3-5.2",
    "Tf+Nd 3-3-10": "2.nondeterministic-3-3-10.2",
}
SENTENCES, CLASSES = 32, 23833
DECODED, DECODING_BATCHES = 64, (1, 32)
ERROR_SIZES = 8, 128  # batch and length at which errors are measured beside the definition in float64
Measurement = dict[str, Any]
Rows = Iterator[Measurement]
Work = Callable[[], object]


def first(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Return the tensor itself, or the first of several."""
    return result if isinstance(result, Tensor) else result[0]


def gradients(call: Call, leaves: list[Tensor]) -> Callable[[], tuple[Tensor, ...]]:
    """Return a function that runs forward and backward with one cotangent."""
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    cotangents: list[Tensor] = []

    def work() -> tuple[Tensor, ...]:
        value = first(call(*leaves))
        if not cotangents:
            cotangents.append(torch.randn_like(value))
        return torch.autograd.grad(value, leaves, cotangents, allow_unused=True)

    return work


def milliseconds(work: Work) -> float:
    """Return the median time of ``work`` by events of the GPU; the first run compiles and is not counted."""
    work()
    torch.cuda.synchronize()
    begin, times = time.perf_counter(), list[float]()
    while len(times) < REPEATS and (not times or time.perf_counter() - begin < SECONDS):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        work()
        events[1].record()
        torch.cuda.synchronize()
        times.append(events[0].elapsed_time(events[1]))
    return statistics.median(times)


def measured(make: Callable[[], Work]) -> Measurement:
    """Return milliseconds and the growth of memory in GiB of what ``make`` returns; or why there are none."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    try:
        return {"ms": milliseconds(make()), "GiB": (torch.cuda.max_memory_allocated() - before) / 2**30}
    except torch.OutOfMemoryError:
        return {"failed": "out of memory"}
    except (RuntimeError, ValueError) as error:
        return {"failed": str(error).splitlines()[0][:200]}


def timings(call: Call, leaves: list[Tensor]) -> dict[str, Measurement]:
    """Measure forward without gradients, and forward and backward."""

    def forward() -> object:
        with torch.no_grad():
            return call(*leaves)

    return {"forward": measured(lambda: forward), "forward and backward": measured(lambda: gradients(call, leaves))}


def rows_of_operators() -> Rows:
    """Measure forward, and forward and backward, of every operator at every size."""
    for name, (leaves_of, call) in OPERATORS.items():
        for batch in BATCHES:
            for length in LENGTHS:
                torch.manual_seed(0)
                sizes = {"operator": name, "batch": batch, "length": length}
                yield sizes | timings(call, leaves_of(batch, length))


def rows_of_peers() -> Rows:
    """Measure torch's causal attention of 4 heads of 64, in bfloat16 by FlashAttention and in float32."""
    for batch in BATCHES:
        for length in LENGTHS:
            for dtype in (torch.bfloat16, torch.float32):
                shape = batch, 4, length, 64
                leaves = [torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3)]

                def attention(*given: Tensor) -> Tensor:
                    return F.scaled_dot_product_attention(given[0], given[1], given[2], is_causal=True)

                name = f"softmax attention, {str(dtype).removeprefix('torch.')}"
                yield {"operator": name, "batch": batch, "length": length} | timings(attention, leaves)


def rows_of_other_operators() -> Rows:
    """Measure operators that are not computed in tiles or chunks, beside what they replace."""
    for name, (leaves_of, call, before) in OTHER_OPERATORS.items():
        for length in (128, 512):
            leaves = leaves_of(BATCHES[0], length)
            row = {"operator": name, "batch": BATCHES[0], "length": length} | timings(call, leaves)
            yield row if before is None else row | {"before": timings(before, leaves)}


def errors() -> Rows:
    """Compare values and gradients in float32 with those of the definition in float64: the largest ratio of norms."""
    for name, (leaves_of, call) in OPERATORS.items():
        torch.manual_seed(1)
        leaves = leaves_of(*ERROR_SIZES)
        cotangent = torch.randn_like(first(call(*leaves)))
        both = []
        for dtype, options in ((torch.float32, {}), (torch.float64, {"implementation": "reference"})):
            given = [leaf.detach().to(dtype).requires_grad_() for leaf in leaves]
            value = first(call(*given, **options))
            both.append([value.detach(), *torch.autograd.grad(value, given, cotangent.to(dtype))])
        found = [float((x.double() - y).norm() / y.norm()) for x, y in zip(*both, strict=True)]
        yield {"operator": name, "values": found[0], "gradients": max(found[1:])}


def language_model(layers: str, d_model: int) -> torch.nn.Module:
    """Return a language model of the paper's shape on the GPU."""
    sizes = {
        "d_model": d_model,
        "d_ff": 4 * d_model,
        "num_heads": 8,
        "layers": layers.format(width=d_model - 1),
        "tied_embeddings": True,
    }
    torch.manual_seed(0)
    return build_language_model(LanguageModelSettings.model_validate(sizes), VocabularySpec(CLASSES + 2)).cuda()


def training_step(model: torch.nn.Module, length: int) -> Work:
    """Return a function that updates the model on a batch of sentences, under autocast to bfloat16."""
    optimizer = torch.optim.Adam(model.train().parameters(), lr=1e-5, fused=True, capturable=True)
    tokens = torch.randint(3, CLASSES + 2, (SENTENCES, length + 1), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens[:, :-1])
        F.cross_entropy(logits.flatten(0, 1).float(), class_of(tokens[:, 1:].flatten())).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def captured(step: Work) -> Work:
    """Return the replay of the step as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def rows_of_training(way: Callable[[Work], Work]) -> Rows:
    """Measure whole training steps of the models, called or replayed."""
    for name, layers in MODELS.items():
        for d_model in (256, 512):
            for length in LENGTHS[:3]:
                step = training_step(language_model(layers, d_model), length)
                sizes = {"model": name, "d_model": d_model, "batch": SENTENCES, "length": length}
                yield sizes | measured(lambda step=step: way(step))


def rows_of_decoding() -> Rows:
    """Measure a token of decoding, step by step from the start."""
    for name, layers in MODELS.items():
        model: Any = language_model(layers, 256).eval()
        for batch in DECODING_BATCHES:
            tokens = torch.randint(3, CLASSES + 2, (DECODED, batch), device="cuda")

            def decode(model: Any = model, tokens: Tensor = tokens) -> None:
                state = model.initial_state(tokens.shape[1])
                for column in tokens:
                    _, state = model.step(column, state)

            with torch.no_grad():
                found = measured(lambda decode=decode: decode)
            if "ms" in found:
                found["ms"] /= DECODED
            yield {"model": name, "batch": batch} | found


def require_correct_kernels() -> None:
    """Exit unless there is a device and every kernel agrees with its reference."""
    if not torch.cuda.is_available() or interpreted():
        sys.exit("benchmarks/gpu.py needs a CUDA device, and TRITON_INTERPRET unset: nothing is measured")
    outcomes = [
        outcome
        for outcome in all_outcomes()
        if outcome.operator != "softmax_attention" and outcome.implementation == "gpu"
    ]
    for outcome in outcomes:
        if outcome.wrong or (outcome.error is None and "has no GPU kernel" not in outcome.reason):
            sys.exit(f"{outcome.operator} on the GPU: {outcome.reason or outcome.error}: nothing is measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu.json")
    parser.add_argument("--only", metavar="PART")
    arguments = parser.parse_args()
    output: Path = arguments.output
    require_correct_kernels()
    environment = {
        "structattn": structattn.__version__,
        "torch": torch.__version__,
        "triton": importlib.metadata.version("triton"),
        "device": torch.cuda.get_device_name(),
    }
    report: dict[str, Any] = heading("python benchmarks/gpu.py") | environment
    if arguments.only and output.exists():
        report = json.loads(output.read_text(encoding="utf-8"))
        if any(report[name] != value for name, value in environment.items()):
            sys.exit(f"{output} is of {[report[name] for name in environment]}, not {list(environment.values())}")
    parts = {
        "errors": errors,
        "peers": rows_of_peers,
        "decoding": rows_of_decoding,
        "training": lambda: rows_of_training(lambda step: step),
        "operators": rows_of_operators,
        "other operators": rows_of_other_operators,
        # Last, because torch's generator of random numbers is lost where a capture fails.
        "training, captured": lambda: rows_of_training(captured),
    }
    for part, rows in parts.items():
        if arguments.only not in (None, part):
            continue
        report[part] = []
        for row in rows():
            print(json.dumps(row), flush=True)
            report[part].append(row)
            output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"written to {output}")


if __name__ == "__main__":
    main()
