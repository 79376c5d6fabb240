"""Results of the demo's models after one epoch, for several seeds and two initializations of the embeddings.

    python benchmarks/demo_seeds.py [--seeds 1 2 3] [--output FILE.json]

Trains Tf and Tf+Nd on w#w^R (10,000 strings, one epoch, learning rate 0.003) as `structattn demo` does, and reports the
validation cross-entropy difference from the lower bound, in nats per symbol.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from structattn.cli.demo import MODELS, demo_settings, prepared_data
from structattn.evaluation.run_evaluation import evaluate
from structattn.training.run_training import train


def difference(data: Path, model: dict[str, Any], seed: int, folder: Path) -> float | None:
    """Return the validation difference of the last checkpoint after one epoch; no checkpoint is selected by it."""
    train(demo_settings(data, model, seed, 1, 10_000), folder)
    return evaluate(folder, "valid", checkpoint="last").cross_entropy_difference


def main() -> None:
    """Train every model with every initialization and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--initializations", nargs="+", default=["normal", "uniform"])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for seed in arguments.seeds:
            data = prepared_data(Path(name) / f"data-{seed}", seed, 10_000)
            for initialization in arguments.initializations:
                for model, settings in MODELS.items():
                    folder = Path(name) / f"{model}-{initialization}-{seed}"
                    value = difference(data, {**settings, "embedding_init": initialization}, seed, folder)
                    rows.append({"seed": seed, "embedding_init": initialization, "model": model, "difference": value})
                    print(json.dumps(rows[-1]), flush=True)
    if arguments.output:
        result = {"command": "python benchmarks/demo_seeds.py", "arguments": vars(arguments), "rows": rows}
        arguments.output.write_text(json.dumps(result, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
