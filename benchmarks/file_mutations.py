"""Ways to damage the files of a run or a prepared folder, and the recomputation of their digests by an attacker."""

import contextlib
import hashlib
import json
import os
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from structattn.runs.folder import RunFolder, settings_digest
from structattn.settings.run import load_settings
from structattn.support.json_files import DIGEST, content_digest

SPARSE = 1 << 36  # bytes of a file that is extended by a hole
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
NUMBERS = (b"-1", b"0", b"1", b"2", b"1e999", b"-1e308", b"NaN", b"Infinity", b"99999999999999999999", b"999999999")
NUMBERS += (b"9" * 6000, b"2024-99-99", b"0x", b"1_0", b"1e5", b"0.5", b"true", b"null", b'"7"', b"{}", b"[]")
TAGS = (b"!!float abc", b"!!int abc", b"!!bool abc", b"!!binary abc", b"!!timestamp abc", b"!!set {a, b}", b"&a [*a]")
TAGS += (b"!!python/object/apply:os.system ['true']", b"!!python/name:os.system", b"<<: *x", b"*unknown", b"\x00")
PATHS = ("../../../../etc/passwd", "/etc/passwd", "/dev/zero", "..", "", "a\x00b", "x" * 5000, "\x1b[2J")

KINDS = {"run": "run", "best": "best", "scores": "scores", "records": "recording", "analyses": "analysis"}

Bytes = Callable[[bytes, Random], bytes]


def flip(data: bytes, random: Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(random.choice([1, 1, 1, 2, 8, 64])):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def extend(data: bytes, random: Random) -> bytes:
    size = random.choice([1, 1, 8, 300])
    return data + random.choice([random.randbytes(size), bytes(size), data, data[-size:], b"\n"])


def splice(data: bytes, random: Random) -> bytes:
    start, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + random.randbytes(random.randrange(64)) + data[end:]


def exchange_parts(data: bytes, random: Random) -> bytes:
    """Exchange two parts of the same length: lines of a text, or blocks."""
    if b"\n" in data and random.random() < 0.5:
        lines = data.split(b"\n")
        i, j = random.randrange(len(lines)), random.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
        return b"\n".join(lines)
    size = random.choice([1, 4, 8, 64])
    i, j = sorted(random.randrange(max(1, len(data) - size)) for _ in range(2))
    if i + size > j:
        return flip(data, random)
    return data[:i] + data[j : j + size] + data[i + size : j] + data[i : i + size] + data[j + size :]


def change_number(data: bytes, random: Random) -> bytes:
    """Replace a number in a text; in other files set four bytes to a float that is not finite, or a large integer."""
    found = list(NUMBER.finditer(data[:20000])) if _is_text(data) else []
    if found:
        match = random.choice(found)
        return data[: match.start()] + random.choice(NUMBERS) + data[match.end() :]
    value = random.choice([float("nan"), float("inf"), -3e38, 1e-40])
    four = random.choice([struct.pack("<f", value), struct.pack("<i", random.choice([-1, 2**31 - 1, 7, 100_000]))])
    place = max(0, len(data) - 4 * random.randrange(1, 2 + len(data) // 4))
    return data[:place] + four + data[place + 4 :]


def nest(data: bytes, random: Random) -> bytes:
    depth = random.choice([40, 100, 900, 5000, 200_000])
    opening, closing = random.choice([(b"[", b"]"), (b'{"a":', b"}"), (b"- ", b""), (b"(", b")")])
    deep = opening * depth + b"1" + closing * depth
    parts = data.split(b":")
    place = random.randrange(len(parts))
    return random.choice([deep, b":".join([*parts[:place], deep, *parts[place + 1 :]])])


def change_tag(data: bytes, random: Random) -> bytes:
    """Put a YAML tag, an alias or an alias bomb in place of a value."""
    if random.random() < 0.2:
        bomb = b"a0: &a0 [x, x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (i, i, i - 1, i - 1) for i in range(1, 40))
        return random.choice([bomb, data + bomb, bomb + data])
    lines = data.split(b"\n")
    place = random.randrange(len(lines))
    key, colon, _ = lines[place].partition(b":")
    lines[place] = key + colon + b" " + random.choice(TAGS)
    return b"\n".join(lines)


def traverse(data: bytes, random: Random) -> bytes:
    """Replace a string by a path that leads out of the folder."""
    strings = list(re.finditer(rb'"[^"\n]*"', data[:20000])) or list(re.finditer(rb"\S+", data[:20000]))
    path = random.choice(PATHS)
    if not strings:
        return path.encode()
    match = random.choice(strings)
    return data[: match.start()] + json.dumps(path).encode() + data[match.end() :]


CHANGES: Mapping[str, Bytes] = {
    "flip": flip,
    "truncate": lambda data, random: data[: random.randrange(len(data) + 1)],
    "extend": extend,
    "splice": splice,
    "exchange parts": exchange_parts,
    "number": change_number,
    "nest": nest,
    "tag": change_tag,
    "traverse": traverse,
    "noise": lambda data, random: random.randbytes(random.randrange(2000)),
}


def _is_text(data: bytes) -> bool:
    return b"\0" not in data[:2000]


def _link(target: str) -> Callable[[Path, Random], None]:
    def replace(path: Path, _: Random) -> None:
        path.unlink()
        path.symlink_to(target)

    return replace


def _fifo(path: Path, _: Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path, _: Random) -> None:
    path.unlink()
    path.mkdir()


def _hole(path: Path, _: Random) -> None:
    os.truncate(path, SPARSE)


def _exchange_files(path: Path, random: Random) -> None:
    """Exchange two files, mostly two of the same name or kind."""
    root = path.parent.parent
    files = [other for other in sorted(root.rglob("*")) if other.is_file() and other != path]
    alike = [other for other in files if other.suffix == path.suffix] or files
    other = random.choice(alike if random.random() < 0.8 else files)
    aside = path.with_name(".aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


def _exchange_folders(path: Path, random: Random) -> None:
    """Exchange the folder of a file with another one of its kind, for instance two checkpoints or splits."""
    folders = sorted(other for other in path.parent.parent.iterdir() if other.is_dir() and other != path.parent)
    if path.parent.parent.name == "run":  # a folder of scores that is empty is not damaged
        _exchange_files(path, random)
    elif folders:
        other, aside = random.choice(folders), path.parent.with_name(".aside")
        path.parent.rename(aside)
        other.rename(path.parent)
        aside.rename(other)


def _remove(path: Path, _: Random) -> None:
    path.unlink()


def _to_copy(path: Path, _: Random) -> None:
    """Replace a file by a link to a copy of it, which is no damage."""
    copy = path.with_name(f".{path.name}.copy")
    path.rename(copy)
    path.symlink_to(copy.name)


REPLACEMENTS: Mapping[str, Callable[[Path, Random], None]] = {
    "link to /dev/zero": _link("/dev/zero"),
    "link to /dev/null": _link("/dev/null"),
    "link to /dev/full": _link("/dev/full"),
    "link to itself": lambda path, random: _link(path.name)(path, random),
    "link to a copy": _to_copy,
    "FIFO": _fifo,
    "folder": _folder,
    "hole": _hole,
    "exchange files": _exchange_files,
    "exchange folders": _exchange_folders,
    "remove": _remove,
}


def damage(path: Path, outside: Path, random: Random) -> str:
    """Damage a file in a random way, perhaps by a link to a file out of its folder, and return the way."""
    replacements = REPLACEMENTS | {"link out of the folder": _link(str(outside))}
    if random.random() < 0.3:
        name = random.choice(sorted(replacements))
        replacements[name](path, random)
        return name
    name = random.choice(sorted(CHANGES))
    path.write_bytes(CHANGES[name](path.read_bytes(), random))
    return name


def forge_digests(run: Path, data: Path) -> None:
    """Recompute all digests of a run and its prepared folder, as far as the damage allows."""
    data_digest = _forge_header(data)
    with contextlib.suppress(Exception):
        _forge_settings(RunFolder(run))
    settings = None
    with contextlib.suppress(Exception):
        settings = settings_digest(load_settings(run / "settings.yaml"))
    for folder in (run / "checkpoints").glob("*"):
        with contextlib.suppress(Exception):
            _forge_checkpoint(folder, run / "events.jsonl", settings, data_digest)
    with contextlib.suppress(Exception):
        _forge_card(run, data_digest)
    for path in [run / "run.json", run / "best.json", *run.glob("*/*.json")]:
        with contextlib.suppress(Exception):
            _forge_json(path, KINDS[path.stem if path.parent == run else path.parent.name])


def _forge_header(data: Path) -> str | None:
    path = data / "header.json"
    with contextlib.suppress(Exception):
        header = json.loads(_read(path))
        for name in header["files"]:
            with contextlib.suppress(Exception):
                header["files"][name] = _sha256(_read(data / name))
        path.write_text(json.dumps(header, indent=2, ensure_ascii=False) + "\n")
    with contextlib.suppress(Exception):
        return _sha256(_read(path))
    return None


def _forge_settings(run: RunFolder) -> None:
    text = _read(run.settings).rpartition(b"# sha256: ")
    content = text[0] or text[2]
    run.settings.write_bytes(content + f"# sha256: {_sha256(content)}\n".encode())


def _forge_checkpoint(folder: Path, events: Path, settings: str | None, data: str | None) -> None:
    with contextlib.suppress(Exception):
        state = json.loads(_read(folder / "state.json"))
        state["event_log"] = _prefix(events, state["event_log"]["length"])
        (folder / "state.json").write_text(json.dumps(state))
    manifest = json.loads(_read(folder / "MANIFEST.json"))
    for name in manifest["files"]:
        with contextlib.suppress(Exception):
            content = _read(folder / name)
            manifest["files"][name] = {"bytes": len(content), "sha256": _sha256(content)}
    manifest["settings_digest"] = settings or manifest["settings_digest"]
    manifest["data_digest"] = data or manifest["data_digest"]
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))


def _forge_card(run: Path, data: str | None) -> None:
    card: dict[str, Any] = json.loads(_read(run / "run.json"))
    with contextlib.suppress(Exception):
        card["data"]["digest"] = data or card["data"]["digest"]
    with contextlib.suppress(Exception):
        card["result"]["event_log"] = _prefix(run / "events.jsonl", card["result"]["event_log"]["length"])
    (run / "run.json").write_text(json.dumps(card))


def _forge_json(path: Path, kind: str) -> None:
    content = json.loads(_read(path))
    content.pop(DIGEST, None)
    path.write_text(json.dumps({**content, DIGEST: content_digest(kind, path.name, content)}))


def _prefix(events: Path, length: int) -> dict[str, Any]:
    content = _read(events)[:length]
    return {"length": len(content), "sha256": _sha256(content)}


def _read(path: Path) -> bytes:
    if not path.is_file() or path.stat().st_size > 1 << 26:
        raise OSError(f"{path} is not a small file")
    return path.read_bytes()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
