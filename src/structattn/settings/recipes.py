"""Recipes: files of settings that come with the package, each with a name; and the plugins that they name."""

import os
import re
from itertools import takewhile
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from structattn.settings.base import did_you_mean
from structattn.support.errors import SettingsError, UsageError
from structattn.support.plugins import load_plugin, require_loaded

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
        SettingsError: there is neither such a recipe nor such a file, it is a folder, or its folder cannot be read.
    """
    text = str(name).replace(os.sep, "/")
    known = {_name(path): path for path in _FOLDER.rglob("*.yaml")}
    path = known[text] if text in known else folder / text
    try:
        exists, is_folder = path.exists(), path.is_dir()
    except OSError as error:  # also of a name that is too long
        raise SettingsError(f"{path}: {error.strerror}") from None
    if not exists:
        hint = did_you_mean(text.removeprefix("recipes/").removesuffix(".yaml"), known)
        raise SettingsError(
            f"{path}: neither a file nor a recipe{hint or '; `structattn list recipes` shows the recipes'}"
        )
    if is_folder:
        raise SettingsError(
            f"{path}: is a folder; expected a file of settings, or a recipe of `structattn list recipes`"
        )
    return path


def _name(path: Path) -> str:
    return path.relative_to(_FOLDER).with_suffix("").as_posix()


def _first_sentence(path: Path) -> str:
    """Return the first sentence of the comment at the head of a file, before its indented commands."""
    comment = takewhile(re.compile(r"# \S").match, path.read_text("utf-8").splitlines())
    text = " ".join(line.removeprefix("# ") for line in comment)
    return re.split(r"(?<=[.?]) (?=[A-Z`])", text)[0]


_OF_FOLDERS = ("run.json", "events.jsonl", "trials.json")  # of runs and of sweeps


def _require_loaded(name: str) -> str:
    try:
        require_loaded(name)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return name


Plugins = Annotated[
    tuple[Annotated[str, AfterValidator(_require_loaded)], ...],
    Field(
        description="files of Python, relative to this one, or names of installed plugins, to be loaded first; only "
        "in a file outside of a run folder"
    ),
]


def load_plugins_of(tree: dict[str, Any], path: Path) -> None:
    """Load the plugins that a recipe names, unless it lies in the folder of a run or of a sweep.

    Validation then refuses those that are not loaded.

    Raises:
        SettingsError: a plugin cannot be loaded.
    """
    names = tree.get("plugins", ())
    folder = path.resolve().parent
    in_folder = any((each / name).exists() for each in (folder, *folder.parents) for name in _OF_FOLDERS)
    if not isinstance(names, list) or in_folder:
        return
    for name in filter(lambda each: isinstance(each, str), names):
        try:
            load_plugin(name, folder)
        except UsageError as error:
            failure = SettingsError(f"{path}: plugins: {error}")
            for note in getattr(error, "__notes__", ()):
                failure.add_note(note)
            raise failure from None
