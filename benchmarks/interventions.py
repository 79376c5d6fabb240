"""Time from a request with an intervention to its recording, at the sizes of DuSell & Chiang (2024, section 6).

    python benchmarks/interventions.py [--output FILE.json]

`structattn explore RUN --serve` runs in a process of its own. A string of 60 symbols is recorded with the contents of
the stack to depth 10, while an action is forced at one position after the other.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from result_file import heading, parse_output, print_and_write

from structattn.settings.run import resolve_settings
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.training.run_training import train

REQUESTS = 59
TEXT = ("01" * 15) + "#" + ("10" * 14) + "1"
MODELS = {
    "Tf": {"d_model": 32, "d_ff": 64, "layers": "5"},
    "Tf+Sup": {"d_model": 32, "d_ff": 64, "layers": "2.superposition-32.2"},
    "Tf+Nd": {"d_model": 28, "d_ff": 56, "layers": "2.nondeterministic-2-3-5.2"},
}
SERVER = "from structattn.cli.main import main; main()"


def milliseconds(link: str, interventions: list[dict[str, Any]]) -> float:
    """Return how long one request takes."""
    address = urlsplit(link)
    headers = {"Content-Type": "application/json", "X-Structattn-Token": parse_qs(address.query)["token"][0]}
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    start = time.perf_counter()
    connection.request("POST", "/record", json.dumps({"text": TEXT, "interventions": interventions}), headers)
    answer = connection.getresponse()
    content = answer.read()
    end = time.perf_counter()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(content.decode())
    return 1000 * (end - start)


def interventions(name: str, position: int) -> list[dict[str, Any]]:
    """Return what is changed: an action of the stack, or a head where there is none."""
    if name == "Tf":
        return [{"kind": "head_off", "layer": position % 5, "head": position % 4}]
    return [{"kind": "forced_action", "layer": 2, "position": position, "action": ("push", "pop")[position % 2]}]


def served(run: Path, name: str) -> list[float]:
    """Serve a run; return the milliseconds of each request after the first."""
    words = [sys.executable, "-c", SERVER, "explore", str(run), "--text", TEXT, "--serve"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        link = server.stdout.readline().strip()
        milliseconds(link, [])
        found = [milliseconds(link, interventions(name, position)) for position in range(REQUESTS)]
        server.terminate()
    return found


def main() -> None:
    """Measure, print the results, and write them to a file if one is given."""
    output, rows = parse_output(__doc__), {}
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        prepare_formal_language(data, "marked-reversal", sizes=FormalLanguageSizes(20, 10, 1))
        for model, settings in MODELS.items():
            tree = {"task": "formal_language", "data": str(data), "model": {"num_heads": 4, **settings}}
            train(resolve_settings(tree | {"training": {"max_updates": 1, "num_threads": 1}}), Path(name) / model)
            times = sorted(served(Path(name) / model, model))
            rows[model] = {"median": statistics.median(times), "95 %": times[int(0.95 * len(times))]}
    result = {
        **heading("python benchmarks/interventions.py"),
        "processors": os.cpu_count(),
        "load average": round(os.getloadavg()[0], 1),
        "tokens": len(TEXT) + 1,
        "milliseconds": rows,
    }
    print_and_write(result, output)


if __name__ == "__main__":
    main()
