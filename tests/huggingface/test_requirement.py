"""What is said where transformers is absent or old."""

from importlib import metadata

import pytest


def test_absence_and_age_are_told(transformers, monkeypatch):
    from structattn.huggingface.requirement import require_transformers

    require_transformers()
    monkeypatch.setattr(metadata, "version", lambda name: "4.57.1")
    with pytest.raises(ImportError, match=r"needs transformers 5 or newer, but 4.57.1 is installed"):
        require_transformers()

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(ImportError, match=r"pip install 'structattn\[hf\]'"):
        require_transformers()
