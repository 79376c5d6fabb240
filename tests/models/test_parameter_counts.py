"""Every parameter count that DuSell & Chiang (2024) print for their transformers (Table 5, sections 7 and 8)."""

import pytest
import torch

from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_language_model, build_model
from structattn.settings.run import resolve_settings
from structattn.settings.transformer import EncoderDecoderSettings, LanguageModelSettings

SPECIAL = 3  # <pad>, <bos>, <eos>
SYMBOLS = {"w#w^R": 3, "ww^R": 2, "w a^p w^R": 2, "Dyck": 4, "Hardest CFL": 7}
LARGE_PDA = {"w a^p w^R", "Hardest CFL"}  # three states, the others two; always three symbols
COUNTS = {
    "w#w^R": (43_044, 40_964, 33_273),
    "ww^R": (42_979, 40_899, 33_216),
    "w a^p w^R": (42_979, 40_899, 36_576),
    "Dyck": (43_109, 41_029, 33_330),
    "Hardest CFL": (43_304, 41_224, 36_861),
}


def count(vocabulary_size: int, **settings: object) -> int:
    with torch.device("meta"):
        model = build_model(LanguageModelSettings(**settings), vocabulary_size)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("task", SYMBOLS)
def test_formal_languages(task):
    states = 3 if task in LARGE_PDA else 2
    size = SYMBOLS[task] + SPECIAL
    plain, superposition, nondeterministic = COUNTS[task]
    assert count(size, layers="5") == plain
    assert count(size, layers="2.superposition-32.2") == superposition
    layers = f"2.nondeterministic-{states}-3-5.2"
    assert count(size, layers=layers, d_model=28, d_ff=56) == nondeterministic


@pytest.mark.parametrize(
    ("layers", "expected"),
    [("5", 10_051_072), ("2.superposition-511.2", 10_050_304), ("2.nondeterministic-3-3-10.2", 9_861_898)],
)
def test_penn_treebank(layers, expected):
    sizes = {"d_model": 256, "d_ff": 1024, "num_heads": 8}
    assert count(23_835, layers=layers, tied_embeddings=True, **sizes) == expected


@pytest.mark.parametrize(
    ("d_model", "plain", "superposition", "nondeterministic"),
    [
        (160, 4_595_200, 4_492_480, 4_465_610),
        (240, 9_580_800, 9_349_920, 9_232_810),
        (360, 20_419_200, 19_900_080, 19_551_610),
    ],
)
def test_translation(d_model, plain, superposition, nondeterministic):
    def translators(layers):
        side = {"layers": layers}
        sizes = {"d_model": d_model, "d_ff": 4 * d_model, "num_heads": 8, "tied_embeddings": "three-way"}
        with torch.device("meta"):
            model = build_model(
                EncoderDecoderSettings(kind="encoder_decoder", encoder=side, decoder=side, **sizes), 6_156
            )
        return sum(parameter.numel() for parameter in model.parameters())

    assert translators("5") == plain
    assert translators(f"2.superposition-{d_model}.2") == superposition
    assert translators("2.nondeterministic-3-3-5.2") == nondeterministic


def test_characters_need_no_parameter_for_a_word():
    """C2W with the character vectors and LSTMs of Ling et al. (2015), beside a table of the same width."""
    sizes = {"layers": "1", "d_model": 48}

    def of_embedding(vocabulary_size, embedding):
        words = VocabularySpec(vocabulary_size, 100, lambda: torch.zeros(vocabulary_size - 4, 12, dtype=torch.int64))
        model = build_language_model(LanguageModelSettings(embedding=embedding, **sizes), words)
        return sum(parameter.numel() for parameter in model.embedding.parameters())

    assert of_embedding(5_000, "table") == (5_000 - 2) * 48
    c2w = 2 * 48 + 100 * 50 + 2 * 4 * 150 * (50 + 150 + 2) + 300 * 48 + 48
    assert of_embedding(5_000, "c2w") == of_embedding(50_000, "c2w") == c2w


STACKS = {"": None, "+Sup": "superposition-50", "+Nd": "nondeterministic-3-3-5"}
D25 = {  # architecture -> width and parameters: question formation, tense reinflection (DuSell & Cotterell 2025)
    "Tf": ((68, 193_596), (68, 195_636)),
    "Tf+Sup": ((72, 202_896), (72, 205_056)),
    "Tf+Sup+Sup": ((76, 209_532), (72, 191_448)),
    "Tf+Nd": ((68, 191_085), (68, 193_125)),
    "Tf+Nd+Nd": ((72, 208_882), (68, 190_614)),
    "RNN": ((176, 199_056), (174, 199_926)),
    "RNN+Sup": ((168, 199_301), (166, 199_917)),
    "RNN+Sup+R": ((163, 200_081), (160, 199_883)),
    "RNN+Nd": ((158, 199_595), (156, 199_879)),
    "RNN+Nd+R": ((154, 200_886), (151, 200_199)),
    "LSTM": ((90, 201_960), (89, 200_250)),
    "LSTM+Sup": ((85, 202_098), (84, 200_225)),
    "LSTM+Sup+R": ((80, 200_063), (79, 199_580)),
    "LSTM+Nd": ((82, 199_131), (82, 201_591)),
    "LSTM+Nd+R": ((78, 199_084), (77, 198_386)),
}


def architecture(name: str, width: int) -> dict[str, object]:
    """Settings of one of the fifteen architectures."""
    kind, *parts = name.split("+")
    stack = STACKS[f"+{parts[0]}" if parts else ""]
    if kind == "Tf":
        layers = {0: "5", 1: f"2.{stack}.2", 2: f"1.{stack}.1.{stack}.1"}[len(parts)]
        return {"d_model": width, "d_ff": 2 * width, "layers": layers, "tied_embeddings": True}
    return {"kind": kind.lower(), "hidden_size": width, "num_layers": 3, "stack": stack, "tied_embeddings": True,
            "learned_initial_state": True, "join_reading": parts[-1:] == ["R"]}  # fmt: skip


@pytest.mark.parametrize("name", D25)
def test_syntactic_generalization(name):
    """All fifteen architectures at both vocabulary sizes; a transformer's table has a row for <pad>, too."""
    for symbols, (width, expected) in zip((68, 98), D25[name], strict=True):
        settings = resolve_settings({"task": "language_modeling", "data": "x", "model": architecture(name, width)})
        with torch.device("meta"):
            model = build_model(settings.model, symbols + SPECIAL)
        padding_row = width if name.startswith("Tf") else 0
        assert sum(parameter.numel() for parameter in model.parameters()) - padding_row == expected
