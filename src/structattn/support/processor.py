"""The processor's name and features, from /proc/cpuinfo."""

import functools
import platform
from pathlib import Path

_DESCRIPTION = Path("/proc/cpuinfo")


@functools.cache
def processor_name() -> str:
    """Return the name of the processor; its architecture where the system does not tell."""
    return _first_processor().get("model name") or platform.processor() or platform.machine()


@functools.cache
def processor_flags() -> frozenset[str]:
    """Return the feature flags as named by Linux, such as ``avx512_bf16``; none on other systems."""
    described = _first_processor()
    return frozenset(described.get("flags", described.get("Features", "")).split())  # x86 or ARM


def _first_processor() -> dict[str, str]:
    if not _DESCRIPTION.exists():
        return {}
    first = _DESCRIPTION.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    fields = (line.partition(":") for line in first.split("\n"))
    return {name.strip(): value.strip() for name, _, value in fields}
