"""Results of the demo with several seeds: does Tf+Nd find its stack?

    python benchmarks/demo_seeds.py [--seeds 1 2 3] [--models NAME ...] [--epochs N] [--output FILE.json]

Trains the models of `structattn demo` on w#w^R with its settings, and reports the difference of their cross-entropy
from the lower bound, in nats per symbol, at the best checkpoint: on validation strings, and on test strings that are
longer than those of training.
"""

import argparse
import json
import tempfile
from pathlib import Path

from result_file import write_results

from structattn.cli.demo import MODELS, demo_settings, prepared_data
from structattn.loading.evaluate import evaluate
from structattn.tasks.language_modeling.evaluate import longer_than
from structattn.training.run_training import train

STRINGS, LONGEST = 10_000, 80  # the demo's number of training strings, and their maximum length


def main() -> None:
    """Train the models with every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 11)))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for seed in arguments.seeds:
            data = prepared_data(Path(name) / f"data-{seed}", seed, STRINGS)
            for model in arguments.models:
                folder = Path(name) / f"{model}-{seed}"
                train(demo_settings(data, MODELS[model], seed, arguments.epochs, STRINGS), folder)
                value = evaluate(folder, "valid").cross_entropy_difference
                longer = longer_than(evaluate(folder, "test"), LONGEST).cross_entropy_difference
                rows.append({"seed": seed, "model": model, "difference": value, "longer": longer})
                print(json.dumps(rows[-1]), flush=True)
    write_results({"command": "python benchmarks/demo_seeds.py", "rows": rows}, arguments.output)


if __name__ == "__main__":
    main()
