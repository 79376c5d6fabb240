"""Fast precisions by processor flags and limits of oneDNN, and the refusal of bf16."""

from types import SimpleNamespace

import pytest
import torch

from structattn.support import devices
from structattn.support.errors import SettingsError

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
DESCRIPTIONS = {
    "x86": "model name : Some Server CPU\nflags : fpu avx2 avx512f avx512_bf16\n\nmodel name : other\nflags : fpu\n",
    "arm": "processor : 0\nFeatures : fp asimd bf16 i8mm\n",
    "other": "",
}


@pytest.fixture
def on_processor(monkeypatch):
    """Simulate a processor with these flags whose torch has oneDNN."""

    def simulate(*flags, has_types=True):
        monkeypatch.setattr(devices, "processor_flags", lambda: frozenset(flags))
        monkeypatch.setattr(devices, "processor_name", lambda: "Some CPU")
        types = SimpleNamespace(**{f"_is_mkldnn_{name}_supported": lambda: has_types for name in ("bf16", "fp16")})
        monkeypatch.setattr(torch.ops, "mkldnn", types)
        monkeypatch.setattr(torch._C, "_has_mkldnn", True)
        monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
        monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)

    return simulate


@pytest.mark.parametrize(
    ("flags", "is_fast"),
    [
        (["avx2", "fma"], False),
        (["avx512f", "avx512bw", "avx512_vnni"], False),  # torch computes bfloat16 here, but by conversion
        (["avx512f", "avx512_bf16"], True),
        (["avx512f", "amx_tile", "amx_bf16"], True),
        (["asimd", "bf16"], True),
        (["asimd"], False),
        ([], False),
    ],
)
def test_bf16_is_fast_with_instructions_for_it(on_processor, flags, is_fast):
    on_processor(*flags)
    assert (torch.bfloat16 in devices.fast_autocast_dtypes(CPU)) == is_fast
    assert (devices.slow_bf16(CPU) is None) == is_fast


@pytest.mark.parametrize(
    ("limit", "is_fast"),
    [("AVX2", False), ("avx512_core", False), ("AVX512_CORE_VNNI", False), ("AVX512_CORE_BF16", True),
     ("AVX512_CORE_AMX", True), ("DEFAULT", True)],
)  # fmt: skip
@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_a_limit_of_onednn_counts(on_processor, monkeypatch, variable, limit, is_fast):
    on_processor("avx512f", "avx512_bf16")
    monkeypatch.setenv(variable, limit)
    assert (torch.bfloat16 in devices.fast_autocast_dtypes(CPU)) == is_fast


def test_without_types_in_onednn_nothing_is_fast(on_processor, monkeypatch):
    on_processor("avx512_bf16", "avx512_fp16", has_types=False)
    assert devices.fast_autocast_dtypes(CPU) == set()
    on_processor("avx512_bf16", "avx512_fp16")
    assert devices.fast_autocast_dtypes(CPU) == {torch.bfloat16, torch.float16}
    monkeypatch.setattr(torch._C, "_has_mkldnn", False)
    assert devices.fast_autocast_dtypes(CPU) == set()


@pytest.mark.parametrize("native", [True, False])
def test_a_gpu_that_emulates_bf16_is_refused(monkeypatch, native):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    assert (torch.bfloat16 in devices.fast_autocast_dtypes(GPU)) == native
    assert devices.slow_bf16(GPU) == (None if native else "Some GPU has no bfloat16 instructions")


def test_the_refusal_names_the_processor_and_the_setting(on_processor):
    on_processor("avx2")
    devices.require_fast("float32", CPU)
    with pytest.raises(SettingsError) as raised:
        devices.require_fast("bf16", CPU)
    assert str(raised.value) == (
        "training.precision=bf16: Some CPU has no bfloat16 instructions, so training would be several times slower "
        "than in float32; expected training.precision=float32, in a new run, or a device that has them"
    )
    on_processor("avx512_bf16")
    devices.require_fast("bf16", CPU)


@pytest.mark.parametrize(
    ("system", "name", "flags"),
    [
        ("x86", "Some Server CPU", {"fpu", "avx2", "avx512f", "avx512_bf16"}),
        ("arm", None, {"fp", "asimd", "bf16", "i8mm"}),
        ("other", None, set()),
        ("no such file", None, set()),
    ],
)
def test_the_processor_is_read_from_its_description(tmp_path, monkeypatch, system, name, flags):
    if system in DESCRIPTIONS:
        (tmp_path / "cpuinfo").write_text(DESCRIPTIONS[system])
    monkeypatch.setattr(devices, "_DESCRIPTION", tmp_path / "cpuinfo")
    assert devices.processor_flags.__wrapped__() == flags
    found = devices.processor_name.__wrapped__()
    assert found == name if name else found
