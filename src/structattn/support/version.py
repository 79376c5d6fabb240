"""The version of the package, and of its source."""

import os
import subprocess
from functools import cache
from pathlib import Path

__version__ = "0.1.0"


@cache
def source_commit() -> str | None:
    """Return the git commit of the checkout that this package is in, with ``-dirty`` if it has been edited.

    None if the package is installed elsewhere, or git is not.
    """
    git = ["git", "-C", str(Path(__file__).parent)]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", Path(__file__).name], check=True, capture_output=True)
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"],
            check=True, capture_output=True, text=True, env=environment,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
