"""Freed memory that the process keeps."""

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from structattn.support.environment import keep_freed_memory

keep_freed_memory()

def use_memory():
    first, second = np.ones(40 << 20, np.uint8), np.ones(40 << 20, np.uint8)

for _ in range(3):  # the first ones find places in the heap
    use_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    use_memory()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(**variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", FAULTS]
    return int(subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the malloc of glibc is configured")
def test_freed_memory_is_used_again_without_page_faults():
    assert 10 * page_faults() < page_faults(MALLOC_TRIM_THRESHOLD_="1000000")  # the environment's setting is left alone
