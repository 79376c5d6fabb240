"""Numbers of parameters against the table of FLaRe's models (Butoi et al. 2025), and widths that match a number."""

import pytest

from structattn.settings.run import resolve_settings
from structattn.settings.training import Recognition
from structattn.support.errors import SettingsError
from structattn.tasks.recognition.prepare import RecognitionSizes, prepare_recognition
from structattn.tasks.sizes import matched_size, num_parameters
from structattn.text.folders.prepared import open_prepared

TRANSFORMER = {"d_model": 8, "d_ff": 32, "num_heads": 8, "layers": 5}
RECURRENT = {"hidden_size": 4, "embedding_size": 4, "num_layers": 5, "learned_initial_state": True}
MODELS = {
    "transformer": TRANSFORMER,
    "rnn": {"kind": "rnn", **RECURRENT},
    "lstm": {"kind": "lstm", **RECURRENT},
}
WIDTHS = {"transformer": 32, "rnn": 79, "lstm": 40}
LOSSES = (
    Recognition(),
    Recognition(language_modeling=1),
    Recognition(next_symbols=1),
    Recognition(language_modeling=1, next_symbols=1),
)
COUNTS = {  # alphabet: label, with language modeling, with next symbols or both
    "parity": ((63713, 63745, 63844), (63438, 63517, 63757), (65121, 65161, 65284)),
    "marked-copy": ((63745, 63777, 63909), (63517, 63596, 63916), (65161, 65201, 65365)),
    "dyck-2-3": ((63777, 63809, 63974), (63596, 63675, 64075), (65201, 65241, 65446)),
    "stack-manipulation": ((63809, 63841, 64039), (63675, 63754, 64234), (65241, 65281, 65527)),
    "bucket-sort": ((63841, 63873, 64104), (63754, 63833, 64393), (65281, 65321, 65608)),
    "cycle-navigation": ((63905, 63937, 64234), (63912, 63991, 64711), (65361, 65401, 65770)),
    "modular-arithmetic-simple": ((63937, 63969, 64299), (63991, 64070, 64870), (65401, 65441, 65851)),
}


QUICK = ("parity", "modular-arithmetic-simple")  # the smallest and the largest alphabet


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return a function from the name of a language to a small prepared folder."""
    parent, sizes = tmp_path_factory.mktemp("data"), RecognitionSizes(20, 20, 20, 20, 20, 20)

    def prepare(name):
        if not (parent / name).exists():
            prepare_recognition(parent / name, name, sizes=sizes)
        return open_prepared(parent / name)

    return prepare


def settings_of(model):
    return resolve_settings({"task": "recognition", "data": "x", "model": dict(MODELS[model])})


@pytest.mark.parametrize(
    "language", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in COUNTS]
)
def test_parameters_of_flare(prepared, language):
    data = prepared(language)
    for model, (label, modeling, following) in zip(MODELS, COUNTS[language], strict=True):
        size = matched_size(settings_of(model), data, 64_000)
        assert next(iter(size.sizes.values())) == WIDTHS[model]
        assert size.matched == size.total == label
        counts = [num_parameters(size.settings, data, loss) for loss in LOSSES]
        assert counts == [label, modeling, following, following]


def test_the_width_is_the_nearest(prepared):
    data = prepared("parity")
    for model in MODELS:
        size = matched_size(settings_of(model), data, 20_000)
        step = 8 if model == "transformer" else 1
        name, width = next(iter(size.sizes.items()))
        for other in (width - step, width + step):
            tree = size.settings.model_dump(mode="json")
            tree["model"] |= {key: value * other // width for key, value in size.sizes.items()}
            count = num_parameters(resolve_settings(tree), data, Recognition())
            assert abs(count - 20_000) > abs(size.matched - 20_000), name


def test_the_line_names_sizes_and_counts(prepared):
    settings = resolve_settings(
        {
            "task": "recognition",
            "data": "x",
            "model": dict(TRANSFORMER),
            "training": {"recognition": {"next_symbols": 1}},
        }
    )
    size = matched_size(settings, prepared("parity"), 64_000)
    assert str(size) == "d_model 32, d_ff 128: 63,713 parameters, 63,844 with auxiliary outputs"


def test_numbers_that_no_width_has_are_refused(prepared):
    data = prepared("parity")
    with pytest.raises(SettingsError, match=r"--parameters 100: the model has \d+ with its smallest width, 8"):
        matched_size(settings_of("transformer"), data, 100)


def test_the_greatest_width_is_the_last_multiple_of_the_heads(prepared, monkeypatch):
    monkeypatch.setattr("structattn.tasks.sizes._MOST", 44)  # 8 heads: widths 8, 16, 32 and 40
    data = prepared("parity")
    assert matched_size(settings_of("transformer"), data, 95_000).sizes == {"d_model": 40, "d_ff": 160}
    with pytest.raises(SettingsError, match="--parameters 200000: the model has fewer even with a width of 40"):
        matched_size(settings_of("transformer"), data, 200_000)
