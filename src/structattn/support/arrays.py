"""Archives of NumPy arrays."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from structattn.support.files import write_atomically


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays without objects to a compressed archive of NumPy, atomically; equal arrays give equal bytes."""
    content = BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomically(path, content.getvalue())
