"""Recipes: files of settings that come with the package, each with a name."""

import os
import re
from itertools import takewhile
from os import PathLike
from pathlib import Path

from structattn.settings.base import did_you_mean
from structattn.support.errors import SettingsError

_FOLDER = Path(__file__).parents[1] / "recipes"
_SHARED = "base"
"""The folder of settings that several recipes share; they have names, but are not listed."""


def recipes() -> dict[str, str]:
    """Return the name of each recipe, as ``context_free/small``, and the first sentence of its comment."""
    paths = sorted(_FOLDER.rglob("*.yaml"), key=lambda path: (len(path.parts), path))
    return {_name(path): _first_sentence(path) for path in paths if path.parent.name != _SHARED}


def settings_file(name: str | PathLike[str], folder: Path = Path()) -> Path:
    """Return the file of a recipe, or the path of another file of settings.

    Args:
        name: a recipe, whatever files there are (``./text`` is the file ``text``), or a path.
        folder: the folder that the path is relative to.

    Raises:
        SettingsError: there is neither such a recipe nor such a file.
    """
    text = str(name).replace(os.sep, "/")
    known = {_name(path): path for path in _FOLDER.rglob("*.yaml")}
    path = known[text] if text in known else folder / text
    if not path.exists():
        hint = did_you_mean(text.removeprefix("recipes/").removesuffix(".yaml"), known)
        raise SettingsError(
            f"{path}: neither a file nor a recipe{hint or '; `structattn list recipes` shows the recipes'}"
        )
    return path


def _name(path: Path) -> str:
    return path.relative_to(_FOLDER).with_suffix("").as_posix()


def _first_sentence(path: Path) -> str:
    """Return the first sentence of the comment at the head of a file, before its indented commands."""
    comment = takewhile(re.compile(r"# \S").match, path.read_text("utf-8").splitlines())
    text = " ".join(line.removeprefix("# ") for line in comment)
    return re.split(r"(?<=[.?]) (?=[A-Z`])", text)[0]
