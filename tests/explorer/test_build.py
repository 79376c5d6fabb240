"""The committed script and style sheet belong to their sources."""

import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "explorer"
LIMIT = 150_000  # bytes of the page without its data


def source_digest():
    """As in explorer/build.mjs."""
    found = [path for path in (SOURCES / "src").rglob("*") if path.is_file()]
    found += [SOURCES / name for name in ("build.mjs", "package.json", "package-lock.json")]
    digest = hashlib.sha256()
    for name in sorted(path.relative_to(SOURCES).as_posix() for path in found):
        text = (SOURCES / name).read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{name}\n{len(text)}\n".encode() + text)
    return digest.hexdigest()


@pytest.mark.parametrize("name", ["explorer.js", "explorer.css"])
def test_the_build_is_that_of_the_sources(name):
    text = files("structattn.explorer").joinpath(name).read_text(encoding="utf-8")
    (stated,) = re.findall(r"sources sha256:([0-9a-f]{64})", text)
    assert stated == source_digest(), "the sources have changed: run `make explorer`"


def test_the_licences_of_the_libraries_are_kept():
    text = files("structattn.explorer").joinpath("explorer.js").read_text(encoding="utf-8")
    assert "preact" in text
    assert "Permission is hereby granted" in text


def test_the_script_can_stand_in_an_element():
    text = files("structattn.explorer").joinpath("explorer.js").read_text(encoding="utf-8").lower()
    assert "</script" not in text
    assert "<!--" not in text
