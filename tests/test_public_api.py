"""The public API: lazy, complete, documented, and listed on its page."""

import subprocess
import sys

import pytest

import structattn


def test_importing_the_package_loads_neither_torch_nor_pydantic():
    code = "import structattn, sys; sys.exit(bool({'torch', 'pydantic', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", structattn.__all__)
def test_every_public_name_of_the_root_exists(name):
    assert getattr(structattn, name) is not None
    assert name in dir(structattn)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"has no attribute 'lode'; it has .*load"):
        _ = structattn.lode
