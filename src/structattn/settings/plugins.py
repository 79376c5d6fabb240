"""The plugins that a recipe names: executed when it is read, unless it lies in a run folder."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from structattn.support.errors import SettingsError, UsageError
from structattn.support.plugins import load_plugin, require_loaded

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

    Args:
        tree: the settings as read from YAML.
        path: the file, which the user has named.

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
