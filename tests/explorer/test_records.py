"""What the page makes of records, by the functions of its sources in Node.js."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

RECORDS = Path(__file__).resolve().parents[2] / "explorer" / "src" / "records.js"


@pytest.fixture
def node():
    """node(expression, value) evaluates an expression of ``value`` and of the module ``page``."""
    program = shutil.which("node") or pytest.skip("Node.js is not installed")

    def evaluate(expression, value):
        source = f"import * as page from {json.dumps(RECORDS.as_uri())};\nconst value = {json.dumps(value)};\n"
        source += f"console.log(JSON.stringify({expression}));"
        command = [program, "--input-type=module", "-e", source]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return evaluate


def test_a_layer_with_several_stacks_is_one_place_of_a_forced_action(node):
    actions = {"mechanism": "superposition", "action_names": ["push", "no-op", "pop"]}
    records = [
        {"layer": 0, "sublayer": "attention", "mechanism": "softmax", "head": 0},
        *({"layer": 1, "sublayer": "attention", "head": head, **actions} for head in range(3)),
        {"layer": 1, "sublayer": "stack", **actions},
        {"layer": 2, "sublayer": "attention", **actions},
    ]
    assert node("page.stacksOf(value)", records) == [records[1], records[4], records[5]]
