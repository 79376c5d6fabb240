"""What is said where transformers is absent or old."""

from importlib import metadata

import pytest
from pydantic import TypeAdapter

from structattn.settings.models import ModelSettings
from structattn.support.errors import UsageError
from structattn.tasks import model as tasks_model


def test_absence_and_age_are_told(transformers, monkeypatch):
    from structattn.interop.huggingface.requirement import require_transformers

    require_transformers()
    monkeypatch.setattr(metadata, "version", lambda name: "4.57.1")
    with pytest.raises(ImportError, match=r"needs transformers 5 or newer, but 4.57.1 is installed"):
        require_transformers()

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(ImportError, match="or newer; pip install '"):
        require_transformers()


def test_a_run_with_a_model_of_transformers_tells_how_to_install_it(monkeypatch):
    def absent(*arguments):
        raise ImportError("needs transformers; pip install 'structattn[hf]'")

    monkeypatch.setattr(tasks_model, "digests_of", absent)
    settings = TypeAdapter(ModelSettings).validate_python({"kind": "gpt2", "pretrained": "folder"})
    with pytest.raises(UsageError, match=r"pip install 'structattn\[hf\]'"):
        tasks_model.pretrained_digests(settings)
