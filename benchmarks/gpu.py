"""Stack operators on a GPU: time and memory of each operator, and training throughput of language models.

    python benchmarks/gpu.py [--output FILE.json]

Reports medians over synchronized runs of forward and backward in float32. The kernels are first compared with their
reference implementations; nothing is measured if one is wrong.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from every_operator import forward_and_backward
from operator_cases import CASES
from torch.nn import functional as F

import structattn
from structattn.cli.self_check import all_outcomes
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_language_model
from structattn.operators.common.gpu import interpreted
from structattn.settings.transformer import LanguageModelSettings

RESULTS = Path(__file__).parent / "results"
LENGTHS = (64, 128, 256, 512)
REPEATS = 10
STACKS = [case for case in CASES if "stack" in case.name]
# The language models of DuSell & Chiang (2024, section 7): d 256, 5 layers, 8 heads, 23,833 classes.
MODELS = {"Tf": "5", "Tf+Sup": "2.superposition-511.2", "Tf+Nd": "2.nondeterministic-3-3-10.2"}
SENTENCES, CLASSES = 16, 23833


def measured(work: Callable[[], object]) -> dict[str, float]:
    """Return the median seconds and the peak memory; the first run compiles and is not counted."""
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return {"seconds": statistics.median(seconds), "peak_bytes": torch.cuda.max_memory_allocated()}


def operators() -> dict[str, dict[str, dict[str, float]]]:
    """Measure forward and backward of every stack at every length."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for case in STACKS:
        for length in LENGTHS:
            leaves = [x.cuda() for x in case.leaves(length)]
            work = forward_and_backward(lambda given, call=case.call: call(given, "gpu"), leaves)
            result.setdefault(case.name, {})[str(length)] = measured(work)
            print(case.name, length, result[case.name][str(length)], flush=True)
    return result


def training_step(layers: str, length: int) -> Callable[[], object]:
    """Return a function that updates a language model on a batch of sentences of one length."""
    sizes = {"d_model": 256, "d_ff": 1024, "num_heads": 8, "layers": layers, "tied_embeddings": True}
    model = (
        build_language_model(LanguageModelSettings.model_validate(sizes), VocabularySpec(CLASSES + 2)).cuda().train()
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    tokens = torch.randint(3, CLASSES + 2, (SENTENCES, length + 1), device="cuda")

    def step() -> None:
        logits = model(tokens[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten() - 2).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def throughput() -> dict[str, dict[str, float]]:
    """Return training sequences per second for each model and length."""
    result: dict[str, dict[str, float]] = {}
    for name, layers in MODELS.items():
        for length in (32, 128):
            seconds = measured(training_step(layers, length))["seconds"]
            result.setdefault(name, {})[str(length)] = SENTENCES / seconds
            print(name, length, f"{SENTENCES / seconds:.1f} sequences/s", flush=True)
    return result


def require_correct_kernels() -> None:
    """Exit unless there is a device and every kernel agrees with its reference."""
    if not torch.cuda.is_available() or interpreted():
        sys.exit("benchmarks/gpu.py needs a CUDA device, and TRITON_INTERPRET unset: nothing is measured")
    outcomes = [
        outcome for outcome in all_outcomes() if "stack" in outcome.operator and outcome.implementation == "gpu"
    ]
    for outcome in outcomes:
        if outcome.error is None or outcome.wrong:
            sys.exit(f"{outcome.operator} on the GPU: {outcome.reason or outcome.error}: nothing is measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu.json")
    output = parser.parse_args().output
    require_correct_kernels()
    torch.manual_seed(1)
    report = {
        "command": "python benchmarks/gpu.py",
        "date": datetime.now(UTC).date().isoformat(),
        "structattn": structattn.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "operators": operators(),
        "training_sequences_per_second": throughput(),
        "batch_size": SENTENCES,
    }
    output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"written to {output}")


if __name__ == "__main__":
    main()
