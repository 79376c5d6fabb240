"""A full disk ends an export with the path that the user gave."""

import errno

import pytest

from structattn.interop.export.formats import export_run

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12}
TRANSLATOR = {"kind": "encoder_decoder", **SIZES, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
LIBRARIES = {
    "safetensors": "safetensors",
    "huggingface": "transformers",
    "onnx": "onnxscript",
    "ctranslate2": "ctranslate2",
}


@pytest.mark.quick("large files-safetensors", "large files-huggingface", "large files-ctranslate2")
@pytest.mark.parametrize("form", LIBRARIES)
@pytest.mark.parametrize("num_bytes", [0, 3000], ids=["", "large files"])
def test_a_full_disk_is_reported_with_the_path_of_the_user(trained, tmp_path, file_size_limit, form, num_bytes):
    pytest.importorskip(LIBRARIES[form])
    run = trained("joint", TRANSLATOR)
    with file_size_limit(num_bytes), pytest.raises(OSError, match="File too large") as caught:
        export_run(run, form, tmp_path / "exported")
    assert caught.value.errno == errno.EFBIG
    assert str(caught.value.filename).startswith(str(tmp_path / "exported"))
    assert list(tmp_path.iterdir()) == []
