"""Damages copies of a checkpoint in many ways, tries to load each, and reports what happened as JSON.

Run in a process of its own, because an audit hook cannot be removed:

    python hostile_loader.py RUN COUNT SEED
"""

import hashlib
import json
import pickle
import random
import shutil
import sys
from pathlib import Path

import torch

from structattn.runs.folder import RunFolder
from structattn.runs.store import CheckpointStore
from structattn.support.errors import CheckpointError
from structattn.training.assembly import initial_learner, make_plan
from structattn.training.run import restore_state

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json")
FORBIDDEN = {"exec", "import", "compile", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"}
FORBIDDEN |= {"pickle.find_class", "marshal.loads", "code.__new__", "ctypes.dlopen", "socket.connect", "os.spawn"}


class Hostile:
    def __reduce__(self) -> tuple:
        return (exec, ("open('/tmp/pwned', 'w')",))


def flip(data: bytes, generator: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(generator.choice([1, 1, 2, 8, 64])):
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def splice(data: bytes, generator: random.Random) -> bytes:
    start, end = sorted(generator.randrange(len(data)) for _ in range(2))
    return data[:start] + generator.randbytes(generator.randrange(64)) + data[end:]


def change_text(data: bytes, generator: random.Random) -> bytes:
    """Insert unexpected text at the start of a JSON value, in a safetensors header or a JSON file."""
    parts = data[:3000].split(b":")
    values = (b"null", b"-1", b"1e999", b"99999999999999999999", b'"x"', b"{}", b"[" * 5000, b"NaN", b"true", b"0.5")
    index = generator.randrange(len(parts))
    return b":".join([*parts[:index], generator.choice(values), *parts[index + 1 :]]) + data[3000:]


MUTATIONS = {
    "flip": flip,
    "splice": splice,
    "text": change_text,
    "truncate": lambda data, generator: data[: generator.randrange(len(data))],
    "extend": lambda data, generator: data + generator.randbytes(generator.randrange(1, 200)),
    "pickle": lambda data, generator: pickle.dumps(Hostile(), protocol=generator.randrange(6)),
    "noise": lambda data, generator: generator.randbytes(generator.randrange(2000)),
    "torch": lambda data, generator: b"PK\x03\x04" + pickle.dumps([Hostile()]),
}


def update_manifest(folder: Path) -> None:
    """Rewrite the manifest so that it agrees with the damaged files, as an attacker would."""
    manifest = json.loads((folder / "MANIFEST.json").read_bytes())
    manifest["files"] = {
        name: {"bytes": len(content := (folder / name).read_bytes()), "sha256": hashlib.sha256(content).hexdigest()}
        for name in FILES[:3]
    }
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))


def attempt(store: CheckpointStore, learner: object) -> tuple[str, str]:
    try:
        state = store.newest()
        restore_state(learner, state, store)
    except CheckpointError as error:
        return "refused", str(error)
    except BaseException as error:
        return "crashed", repr(error)
    return "loaded", ""


def main() -> None:
    run, count, generator = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    torch.set_num_threads(1)
    place = RunFolder(run)
    plan = make_plan(place, place.read_settings())
    learner = initial_learner(plan)
    good = next(path for path in place.checkpoints.iterdir())
    store = CheckpointStore(run / "hostile", plan.identity, 2, run / "best.json")
    store.clean()
    events: list[str] = []
    listening = False

    def listen(event: str, arguments: tuple) -> None:
        if listening and event in FORBIDDEN:
            events.append(f"{event} {arguments!r:.200}")

    def prepared_copy() -> Path:
        shutil.rmtree(store.folder)
        return Path(shutil.copytree(good, store.folder / good.name))

    prepared_copy()
    warm = attempt(store, learner)  # trigger lazy imports before auditing starts
    sys.addaudithook(listen)
    reports = [{"file": "", "kind": "none", "vouched": False, "outcome": warm[0], "message": warm[1]}]
    for _ in range(count):
        folder, name, kind = prepared_copy(), generator.choice(FILES), generator.choice(sorted(MUTATIONS))
        vouched = name != "MANIFEST.json" and generator.random() < 0.5
        data = (folder / name).read_bytes()
        damaged = MUTATIONS[kind](data, generator)
        (folder / name).write_bytes(damaged)
        if vouched:
            update_manifest(folder)
        listening = True
        outcome, message = attempt(store, learner)
        listening = False
        same = damaged == data or (name == "MANIFEST.json" and as_json(damaged) == as_json(data))
        reports.append(
            {"file": name, "kind": kind, "vouched": vouched, "same": same, "outcome": outcome, "message": message}
        )
    print(json.dumps({"events": events, "folder": str(store.folder), "reports": reports}))


def as_json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data


if __name__ == "__main__":
    main()
