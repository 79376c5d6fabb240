"""The choice of the cases that `make test` runs, translation runs of random weights, and a toy language with names."""

import atexit
import contextlib
import copy
import functools
import gc
import importlib
import itertools
import logging
import os
import random
import resource
import signal
import stat
import sys
from collections import defaultdict
from functools import partial
from types import SimpleNamespace

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck

from structattn.loading.trained_run import TrainedRun
from structattn.settings import yaml
from structattn.settings.run import resolve_settings
from structattn.tasks.model import build_model_for
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared
from structattn.training import loop
from structattn.training.run_training import train

WORDS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "fünf": "five"}
SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8}
DESELECTED = pytest.StashKey[dict[str, int]]()
RUN_BY = {"slow": "make test-all", "apart": "make check"}  # tests with several marks count for the first
SIDES = {"kind": "encoder_decoder", "encoder": {"layers": 2}, "decoder": {"layers": 2}}
COMMON_WORDS = {"eins": "one", "zwei": "two", "drei": "three"}
LETTERS = {"a": "A", "b": "B", "c": "C"}

# What is imported and collected is kept to the end; looking for garbage in it is a tenth of the time of all tests.
gc.disable()
# Interpreters that tests start compile the package once, and these tests are rewritten once.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# How long an example of Hypothesis takes says more about the machine than about the code.
hypothesis.settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis.settings.load_profile("any machine")
# Programs that tests start inherit what nohup ignores, but not a handler.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


@pytest.fixture(scope="session", autouse=True)
def _without_what_no_test_needs():
    """Files are not flushed, missing devices not seeded; one architecture is checked once, one text parsed once.

    Tests of these replace them in turn. Of the time of a small training they would be more than half.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _flush_unless_stored)
        patch.setattr(yaml, "parse_yaml", _parsed_once(yaml.parse_yaml))
        with contextlib.suppress(ModuleNotFoundError):  # tests/fast tests what holds without it
            fast = importlib.import_module("structattn.fast.accelerate")
            patch.setattr(fast, "disagreement", _checked_once(fast.disagreement))
        for device in (torch.cuda, torch.xpu, torch.mtia):
            if not device.is_available():
                patch.setattr(device, "manual_seed_all", lambda seed: None)
        yield


@pytest.fixture(scope="session")
def file_size_limit():
    """with file_size_limit(num_bytes): writes fail as on a full disk."""

    @contextlib.contextmanager
    def limit(num_bytes):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a cut module could not be imported
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            sys.dont_write_bytecode = writes_bytecode

    return limit


@pytest.fixture(scope="session")
def save_empty_figure():
    """In place of Figure.savefig, whose rendering takes most of the time of a report."""

    def save(figure, target, **options):
        target.write('<svg width="1pt" height="1pt"></svg>' if options["format"] == "svg" else b"figure")

    return save


@pytest.fixture
def without_drawing(monkeypatch, save_empty_figure):
    """Figures are made, but not rendered; tests/report renders them."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save_empty_figure)


def _flush_unless_stored(descriptor, flush=os.fsync):
    """Files and folders survive everything but a loss of power unflushed; of other descriptors, it is an error."""
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    if not (stat.S_ISREG(mode := os.fstat(number).st_mode) or stat.S_ISDIR(mode)):
        flush(descriptor)


def _parsed_once(parse):
    """Settings of one run are read again and again."""
    parsed = functools.lru_cache(maxsize=64)(parse)
    return lambda text: copy.deepcopy(parsed(text))


def _checked_once(disagreement):
    """Compare layers with their kernels, unless layers of the same structure and settings were compared before."""
    found = {}

    @functools.wraps(disagreement)
    def check(layers, name):
        key = name, *((path, type(module), repr(_settings(module))) for path, module in layers.named_modules())
        if key not in found:
            found[key] = disagreement(layers, name)
        return found[key]

    return check


def _settings(module):
    weights = {name: value is not None and (value.shape, value.dtype) for name, value in module._parameters.items()}
    return weights, {name: value for name, value in vars(module).items() if not name.startswith("_")}


@pytest.fixture(scope="session")
def parallel_data(tmp_path_factory):
    """Number words in two languages, 1 to 14 a line, prepared with a numbering for each side."""
    place, generator = tmp_path_factory.mktemp("pairs"), random.Random(4)
    splits = {}
    for name in ("train", "valid", "test"):
        lines = [generator.choices(list(WORDS), k=generator.randint(1, 14)) for _ in range(24)]
        texts = {"de": lines, "en": [[WORDS[word] for word in line][: 1 + len(line) // 2] for line in lines]}
        splits[name] = [place / f"{name}.{side}" for side in texts]
        for path, text in zip(splits[name], texts.values(), strict=True):
            path.write_text("".join(" ".join(line) + "\n" for line in text), encoding="utf-8")
    prepare_parallel(place / "data", splits, tokenizer=TokenizerSettings("word", joint=False))
    return place / "data"


@pytest.fixture
def translation_run(parallel_data, tmp_path):
    """translation_run(**model) is a run with a model of drawn weights."""

    def make(**model):
        tree = {
            "task": "translation",
            "data": str(parallel_data),
            "model": {**SIZES, **(model if "kind" in model else SIDES | model)},
            "training": {"batches": {"kind": "pairs", "max_tokens": 100}},
        }
        settings, prepared = resolve_settings(tree), open_prepared(parallel_data)
        torch.manual_seed(5)
        return TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)

    return make


@pytest.fixture
def interrupted():
    """interrupted(settings, folder, *updates) trains a run that dies before each of these updates, and is resumed."""

    def run(settings, folder, *updates):
        for number in updates:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(loop, "training_step", partial(_step_or_die, loop_step, number))
                with pytest.raises(InterruptedError):
                    train(settings, folder, resume="auto")
        return train(settings, folder, resume=True)

    loop_step = loop.training_step
    return run


def _step_or_die(step, number, learner, task, update):
    if update.number == number:
        raise InterruptedError
    return step(learner, task, update)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    functions = defaultdict(list)
    for item in items:
        functions[item.nodeid.split("[")[0]].append(item)
    whole = not any("[" in argument for argument in config.args)
    for name, cases in functions.items():
        if mark := cases[0].get_closest_marker("covering"):
            make_slow(cases, set(covering_cases([values_of(case) for case in cases], *mark.args)))
        if mark := cases[0].get_closest_marker("quick"):
            identifiers = [case.callspec.id for case in cases]
            if whole and (unknown := set(mark.args) - set(identifiers)):
                raise pytest.UsageError(f"{name}: quick names {sorted(unknown)}, which are no cases: {identifiers}")
            make_slow(cases, {index for index, found in enumerate(identifiers) if found in mark.args})


def pytest_collection_finish():
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries report what is alive at the end
    gc.set_threshold(20_000, 50, 50)  # more modules are imported later, and would be looked through, too
    gc.enable()
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True  # else pytest hands its handlers to each, six times a test; torch has 77


def make_slow(cases, kept):
    for index, case in enumerate(cases):
        if index not in kept:
            case.add_marker(pytest.mark.slow)


def values_of(case):
    """Return the values of a case; parameters of one list count as one, and identity tells values apart."""
    joined = {}
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        joined |= {name.strip(): tuple(names) for name in names}
    values = defaultdict(list)
    for name, value in sorted(case.callspec.params.items()):
        values[joined.get(name, name)].append(id(value))
    return tuple((names, *found) for names, found in values.items())


def covering_cases(cases, strength):
    """Greedily few indices of cases that hold all combinations of so many values that occur in any case."""
    held = [set(itertools.combinations(case, min(strength, len(case)))) for case in cases]
    missing, chosen = set().union(*held), []
    while missing:
        best = max(range(len(cases)), key=lambda index: len(held[index] & missing))
        missing -= held[best]
        chosen.append(best)
    return chosen


def pytest_deselected(items):
    for item in items:
        counts = item.config.stash.setdefault(DESELECTED, dict.fromkeys(RUN_BY, 0))
        if mark := next((mark for mark in RUN_BY if item.get_closest_marker(mark)), None):
            counts[mark] += 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """A worker hands the numbers on to the process that reports them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["deselected"] = session.config.stash.get(DESELECTED, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[DESELECTED] = getattr(node, "workeroutput", {}).get("deselected", {})


def pytest_terminal_summary(terminalreporter, config):
    for mark, count in config.stash.get(DESELECTED, {}).items():
        if count:
            terminalreporter.write_line(f"{count} tests marked {mark} were deselected; `{RUN_BY[mark]}` runs them")


def names_pairs(count, seed):
    generator = random.Random(seed)

    def word():
        if generator.random() < 0.6:
            return generator.choice(list(COMMON_WORDS.items()))
        name = "".join(generator.choices(list(LETTERS), k=generator.randint(2, 4)))
        return f"x{name}", "X" + "".join(LETTERS[letter] for letter in name)

    found = [[word() for _ in range(generator.randint(1, 4))] for _ in range(count)]
    return [(" ".join(source for source, _ in line), " ".join(target for _, target in line)) for line in found]


def prepare_names(place, level="word", **counts):
    """Write pairs into files, prepare them, and open the folder."""
    splits = {}
    for seed, (name, count) in enumerate((counts or {"train": 300, "valid": 30, "test": 40}).items()):
        sides = zip(*names_pairs(count, seed), strict=True)
        splits[name] = [place / f"{name}.{side}" for side in ("de", "en")]
        for path, lines in zip(splits[name], sides, strict=True):
            path.write_text("".join(line + "\n" for line in lines))
    prepare_parallel(
        place / "data", splits, tokenizer=TokenizerSettings(level, joint=False, threshold=40 if level == "word" else 0)
    )
    return open_prepared(place / "data")


def names_settings(data, embedding="character_lstm", **training):
    """Settings of a small translator that reads rare words by their characters, and spells them."""
    sizes = {"d_model": 32, "num_heads": 2, "d_ff": 48, "dropout": 0.0}
    start = {"weight_init": "xavier", "embedding_init": "scaled_normal"}
    encoder = {"layers": 1, "embedding": {"kind": embedding, "words": "rare", "character_embedding_size": 8}}
    decoder = {"layers": 1, "spelling": {"character_embedding_size": 8, "num_layers": 1}}
    model = {"kind": "encoder_decoder", **sizes, **start, "encoder": encoder, "decoder": decoder}
    settings = {"batches": {"kind": "pairs", "max_tokens": 200}, "loss": "token_mean", "max_epochs": None, **training}
    return {"task": "translation", "data": str(data), "model": model, "training": settings}


@pytest.fixture(scope="session")
def names():
    """Pairs, prepared data and settings of a toy language with names, which are spelled letter by letter."""
    return SimpleNamespace(pairs=names_pairs, prepare=prepare_names, tree=names_settings)
