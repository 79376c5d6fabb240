"""How the demo's models fare after one epoch, over seeds and over the two ways in which embeddings may begin.

    python benchmarks/demo_seeds.py [--seeds 1 2 3] [--output FILE.json]

Trains Tf and Tf+Nd on w#w^R (10,000 strings, one epoch, learning rate 0.003) as `structattn demo` does, and keeps each
validation cross-entropy difference to the bound, in nats per symbol.
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
    """The validation difference after one epoch, of the last checkpoint: nothing is chosen by it."""
    train(demo_settings(data, model, seed, 1, 10_000), folder)
    return evaluate(folder, "valid", checkpoint="last").cross_entropy_difference


def main() -> None:
    """Train every model under every beginning with every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--beginnings", nargs="+", default=["normal", "uniform"])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for seed in arguments.seeds:
            data = prepared_data(Path(name) / f"data-{seed}", seed, 10_000)
            for beginning in arguments.beginnings:
                for model, settings in MODELS.items():
                    folder = Path(name) / f"{model}-{beginning}-{seed}"
                    value = difference(data, {**settings, "embedding_init": beginning}, seed, folder)
                    rows.append({"seed": seed, "embedding_init": beginning, "model": model, "difference": value})
                    print(json.dumps(rows[-1]), flush=True)
    if arguments.output:
        result = {"command": "python benchmarks/demo_seeds.py", "arguments": vars(arguments), "rows": rows}
        arguments.output.write_text(json.dumps(result, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
