"""Tables and figures of run folders, which topics share. Reads files only and loads no model.

- ``read_run``: the content of a run folder, a ``Run``.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.report.runs import Run, read_run

__all__ = [
    "Run",
    "read_run",
]

__getattr__, __dir__ = lazy_exports(__name__)
