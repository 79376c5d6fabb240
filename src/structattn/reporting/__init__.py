"""Reports: tables and figures of run folders on one HTML page. Reads files only and loads no model.

- ``write_report``: write a report on run folders.
- ``read_run``, ``read_runs``, ``Run``: the content of run folders.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.reporting.page import write_report
    from structattn.reporting.runs import Run, read_run, read_runs

__all__ = ["Run", "read_run", "read_runs", "write_report"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Run": "structattn.reporting.runs",
        "read_run": "structattn.reporting.runs",
        "read_runs": "structattn.reporting.runs",
        "write_report": "structattn.reporting.page",
    },
)
