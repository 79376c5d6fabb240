"""Export of trained runs to the formats of other libraries.

- ``export_run`` writes a folder in one of ``FORMATS``, with a model card.
"""

from structattn.interop.export.formats import FORMATS, export_run

__all__ = ["FORMATS", "export_run"]
