"""The explorer in Chromium: size of the page, time to the first head of 1,024 tokens, to another head, and of hovering.

    pip install playwright; apt-get install chromium
    python benchmarks/explorer.py [--output FILE.json]

The recording has four layers of four softmax heads, the contents of a superposition stack, and 1,024 tokens. Times are
taken in the page: until the frame after the change, from the start of the navigation to the file, from the choice of a
head, and from the movement of the pointer.
"""

import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright
from result_file import heading, parse_output, print_and_write

from structattn.explorer.page import write_explorer
from structattn.explorer.recording import RecordedExample, Recording
from structattn.explorer.recording_files import recording_to_json
from structattn.loading.records import BOTTOM, Contents, Record

TOKENS, LAYERS, HEADS, DEPTHS = 1024, 4, 4, 10
OPENINGS, HOVERS = 10, 200
FIRST_HEAD = """
new MutationObserver((_, observer) => {
  if (document.querySelector(".readout .value") === null) return;
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.firstHead = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
HOVER = """(number) => new Promise((resolve) => {
  const canvas = document.querySelector(".map canvas"), box = canvas.getBoundingClientRect();
  const readout = document.querySelector(".readout"), found = [];
  const next = (index) => {
    if (index === number) return resolve(found);
    const start = performance.now();
    const observer = new MutationObserver(() => {
      observer.disconnect();
      requestAnimationFrame(() => setTimeout(() => { found.push(performance.now() - start); next(index + 1); }));
    });
    observer.observe(readout, { attributes: true });
    const clientX = box.left + box.width * (0.3 + 0.6 * Math.random());
    const clientY = box.top + box.height * (0.3 + 0.6 * Math.random());
    const event = { clientX, clientY, bubbles: true, pointerType: "mouse" };
    canvas.dispatchEvent(new PointerEvent("pointermove", event));
  };
  next(0);
})"""
SWITCH = """(head) => new Promise((resolve) => {
  const select = [...document.querySelectorAll("select")].find((each) => each.ariaLabel === "Head");
  const start = performance.now();
  const observer = new MutationObserver(() => {
    if (document.querySelector(".readout .value") === null) return; // still decoding
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
  });
  observer.observe(document.getElementById("panel"), { characterData: true, childList: true, subtree: true });
  select.value = head;
  select.dispatchEvent(new Event("change", { bubbles: true }));
})"""


def recording() -> Recording:
    """Return a recording of random weights."""
    generator = np.random.default_rng(1)
    tokens = tuple(f"word{index}" for index in range(TOKENS))

    def causal(*shape: int) -> np.ndarray:
        weights = np.tril(generator.random(shape, dtype=np.float32))
        return weights / weights.sum(-1, keepdims=True)

    records = [
        Record(tokens, layer, "attention", head, "softmax", causal(TOKENS, TOKENS), tokens)
        for layer in range(LAYERS)
        for head in range(HEADS)
    ]
    positions = generator.random((TOKENS, DEPTHS, TOKENS + 1), dtype=np.float32) / TOKENS
    contents = Contents(positions.sum((1, 2)), positions.sum(2), positions)
    actions = generator.dirichlet(np.ones(3), TOKENS)
    weights = np.pad(causal(TOKENS, TOKENS), ((0, 0), (1, 0)))
    stack = Record(
        tokens, LAYERS, "attention", None, "superposition", weights, (BOTTOM, *tokens), actions, contents=contents
    )
    surprisal = generator.random(TOKENS)
    example = RecordedExample(tokens, None, (*tokens[1:], "<eos>"), surprisal, (*records, stack))
    return Recording({"name": "random", "task": "language_modeling", "model": "transformer", "update": 0}, (example,))


def renderer_milliseconds() -> dict[str, float]:
    """Return the processor time of each renderer process; other work on the machine counts less in it."""
    ticks, found = os.sysconf("SC_CLK_TCK"), {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if "--type=renderer" in (process / "cmdline").read_text():
                user, system = (process / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
                found[process.name] = 1000 * (int(user) + int(system)) / ticks
        except OSError:  # it has ended
            continue
    return found


def first_head(page: Page, path: Path) -> tuple[float, float]:
    """Return the milliseconds until the first head is on the screen, and those of processors in the renderer."""
    page.goto("about:blank")
    before = renderer_milliseconds()
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_function("() => window.firstHead !== undefined", polling=20)
    used = sum(value - before.get(process, 0) for process, value in renderer_milliseconds().items())
    return float(page.evaluate("window.firstHead")), used


def measured(path: Path) -> dict[str, object]:
    """Measure a page in a browser."""
    program = next(found for name in ("chromium", "google-chrome") if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.add_init_script(FIRST_HEAD)
        opening = [first_head(page, path) for _ in range(OPENINGS)]
        page.wait_for_load_state("load")
        switching = [page.evaluate(SWITCH, str(head)) for head in range(2, HEADS + 1)]
        hovering = sorted(page.evaluate(HOVER, HOVERS))
        version = browser.version
        browser.close()
    return {
        "browser": f"Chromium {version}",
        "milliseconds to the first head": {
            "median": statistics.median(wall for wall, _ in opening),
            "smallest": min(wall for wall, _ in opening),
            "median of processor time": statistics.median(used for _, used in opening),
        },
        "milliseconds to another head": {"median": statistics.median(switching), "largest": max(switching)},
        "milliseconds of hovering": {
            "median": statistics.median(hovering),
            "95 %": hovering[int(0.95 * HOVERS)],
            "largest": hovering[-1],
        },
    }


def main() -> None:
    """Measure, print the results, and write them to a file if one is given."""
    output = parse_output(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        path, content = Path(folder, "explorer.html"), recording_to_json(recording())
        write_explorer(path, [content])
        data = json.dumps({"run": content["run"], "examples": content["examples"]}, ensure_ascii=False)
        result = {
            **heading("python benchmarks/explorer.py"),
            "processors": os.cpu_count(),
            "load average at the start": round(os.getloadavg()[0], 1),
            "tokens": TOKENS,
            "bytes of the page": path.stat().st_size,
            "bytes beside the data": path.stat().st_size - len(data.encode()) - sum(map(len, content["arrays"])),
            **measured(path),
        }
    print_and_write(result, output)


if __name__ == "__main__":
    main()
