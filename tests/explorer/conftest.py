"""Pages of the explorer in a browser: runs of four kinds with a few updates, and a browser that notes all faults."""

import json
import re
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import structattn
from structattn.explorer.page import write_explorer
from structattn.explorer.recording import record
from structattn.explorer.recording_files import recording_to_json
from structattn.settings.run import resolve_settings
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.training.run_training import train

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8}
TOKEN_MEAN = {"loss": "token_mean"}
SIDES = {"kind": "encoder_decoder", "encoder": {"layers": 2}, "decoder": {"layers": 2}}
STACKS = {"kind": "encoder_decoder", "encoder": {"layers": "superposition-4"}, "decoder": {"layers": "superposition-4"}}
RUNS = {
    "formal language": ("formal_language", "dyck", {"layers": "1.nondeterministic-2-3-4.1", **SIZES}, {}),
    "language model": ("language_modeling", "text", {"layers": "1.superposition-4", **SIZES}, TOKEN_MEAN),
    "translation": ("translation", "pairs", SIDES | SIZES, {"batches": {"kind": "pairs", "max_tokens": 100}}),
    "translation with stacks": (
        "translation",
        "pairs",
        STACKS | SIZES,
        {"batches": {"kind": "pairs", "max_tokens": 100}},
    ),
    "discrete transformer": ("formal_language", "dyck", {"layers": "hard.hard", **SIZES}, {}),
}
TEXTS = {"language model": ["the dog ran", "a dog"], "translation": ["eins zwei drei", "fünf vier"]}
TARGETS = {"translation": ["one two three", "five four"]}
EXAMPLES = {"formal language": [0, 1], "discrete transformer": [0, 1]}
WINDOW = {"width": 1200, "height": 900}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, parallel_data):
    folder = tmp_path_factory.mktemp("data")
    prepare_formal_language(folder / "dyck", "dyck", sizes=FormalLanguageSizes(16, 4, 2, (6, 12), (8, 12)))
    (folder / "lines").write_text("the dog ran\na dog ran\n" * 8)
    text = TextSettings(mode="sentences")
    prepare_language_modeling(folder / "text", folder / "lines", folder / "lines", settings=text)
    shutil.copytree(parallel_data, folder / "pairs")
    return folder


@pytest.fixture(scope="session")
def run_dir(prepared, tmp_path_factory):
    """run_dir(kind, seed) is the folder of a run with two updates."""
    made = {}

    def make(kind, seed=1):
        if (kind, seed) not in made:
            task, data, model, training = RUNS[kind]
            tree = {"task": task, "data": str(prepared / data), "model": model, "seed": seed}
            tree["training"] = {"max_updates": 2, "max_epochs": None, **training}
            folder = tmp_path_factory.mktemp("runs") / f"{kind.replace(' ', '-')}-{seed}"
            train(resolve_settings(tree), folder)
            made[kind, seed] = folder
        return made[kind, seed]

    return make


@pytest.fixture(scope="session")
def recorded(run_dir):
    """recorded(kind, seed) is a recording of two examples."""
    made = {}

    def make(kind, seed=1):
        if (kind, seed) not in made:
            run = structattn.load(run_dir(kind, seed))
            texts, targets, examples = TEXTS.get(kind, []), TARGETS.get(kind), EXAMPLES.get(kind, [])
            made[kind, seed] = record(run, texts, targets, examples=examples, depths=4)
        return made[kind, seed]

    return make


@pytest.fixture(scope="session")
def searched(run_dir):
    """A recording of a translation that beam search found."""
    return record(structattn.load(run_dir("translation")), TEXTS["translation"][:1])


@pytest.fixture(scope="session")
def browser():
    """A browser, with the libraries and the program that are there."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; pip install playwright")
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe():
    """Finds what is not accessible on a page."""
    reason = "axe is not installed; pip install axe-playwright-python"
    return pytest.importorskip("axe_playwright_python.sync_playwright", reason=reason).Axe()


@pytest.fixture(scope="session")
def shared_page(browser):
    """The page that tests open their files in, one after another: each new one would start a process."""
    page = browser.new_page()
    page.set_default_timeout(300_000)
    return page


@pytest.fixture
def opened(shared_page, tmp_path):
    """opened(recordings, fragment, **options) is the page; at the end it must have had no error and made no request.

    It shows the heat map unless the fragment names another view; with None it is opened without a fragment. Where it
    is opened again, the earlier recordings are gone.
    """
    page, faults, addresses, patterns = shared_page, [], [], []

    def note_error(error):
        faults.append(str(error))

    def note_message(message):
        faults.extend([message.text] if message.type in ("error", "warning") else [])

    def note_request(request):
        faults.extend([request.url] if request.url.split("#")[0] not in addresses else [])

    def make(recordings, fragment="", ignored=None, viewport=WINDOW, color_scheme="light"):
        if fragment is not None and "view=" not in fragment:
            fragment = f"view=map&{fragment}"
        path = tmp_path / f"{len(addresses)}.html"
        write_explorer(path, [each if isinstance(each, dict) else recording_to_json(each) for each in recordings])
        addresses.append(path.as_uri())
        patterns.append(ignored)
        page.set_viewport_size(viewport)
        page.emulate_media(media="null", color_scheme=color_scheme)
        page.goto(path.as_uri() + (f"#{fragment}" if fragment else ""))
        page.wait_for_selector("[role=tabpanel]")
        return page

    listeners = {"pageerror": note_error, "console": note_message, "request": note_request}
    for event, listener in listeners.items():
        page.on(event, listener)
    yield make
    page.goto("about:blank")
    page.mouse.move(0, 0)  # what the next file shows there must not be under the pointer
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    assert [fault for fault in faults if not any(each and re.search(each, fault) for each in patterns)] == []


@pytest.fixture
def heat_map():
    """What is at which pixel of a heat map."""

    @contextmanager
    def unfolded(page, run=0):
        canvas = page.locator(".map canvas").nth(run)
        box = canvas.bounding_box()
        left, top, cell = (float(canvas.get_attribute(f"data-{name}")) for name in ("left", "top", "cell"))

        def at(row, column):
            return box["x"] + left + (column + 0.5) * cell, box["y"] + top + (row + 0.5) * cell

        yield SimpleNamespace(at=at, canvas=canvas, value=page.locator(".readout .value").nth(run))

    return unfolded


@pytest.fixture
def downloaded(tmp_path):
    """downloaded(page, name) is the content of the file that the button of that name saves."""

    def save(page, name):
        with page.expect_download() as info:
            page.get_by_role("button", name=name).first.click()
        path = tmp_path / info.value.suggested_filename
        info.value.save_as(path)
        return json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()

    return save
