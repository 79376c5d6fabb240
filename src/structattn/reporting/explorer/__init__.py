"""The explorer: recordings as one HTML page that a browser shows without a server or a request.

- ``explorer_page``: the page of one or two recordings.
- ``write_explorer``: write it to a file.

Its source is in ``explorer/``; ``explorer.js`` and ``explorer.css`` are built from there.
"""

from structattn.reporting.explorer.page import explorer_page, write_explorer

__all__ = ["explorer_page", "write_explorer"]
