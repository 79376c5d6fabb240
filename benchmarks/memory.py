"""Resident memory of this process."""

import re
import resource
from pathlib import Path


def resident_bytes(field: str = "VmHWM") -> int:
    """Return the resident memory, at its peak (VmHWM) or now (VmRSS); without /proc, as on macOS, always the peak.

    Under Linux, the peak that ``getrusage`` returns would include that of the process that started this one.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts bytes
    return 1024 * int(re.search(rf"^{field}:\s+(\d+) kB$", status.read_text(), re.MULTILINE)[1])
