"""Write pictures of a report to docs/images: at three widths, light and dark, and its first printed page.

    pip install playwright
    python tools/write_report_images.py REPORT NAME

REPORT is a folder that `structattn report` wrote; the pictures are docs/images/report-NAME-*.png. Needs Debian's
packages chromium and poppler-utils. Exits with 1 if the page is wider than the window, requests anything but itself, or
logs an error.
"""

import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTHS = (400, 800, 1400)
COLOURS = 64
PRINT_DPI = 75


def save(png: bytes, path: Path) -> None:
    """Save a picture with few colours, a third of the size."""
    Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def open_report(browser: Browser, index: Path, scheme: str, width: int, faults: list[str]) -> Page:
    """Open a report, and note what it should not do."""
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": max(800, width * 5 // 7)})
    page.on("pageerror", lambda error: faults.append(f"{width} px: {error}"))
    page.on(
        "console", lambda message: faults.append(f"{width} px: {message.text}") if message.type == "error" else None
    )
    page.on(
        "request", lambda request: faults.append(f"requests {request.url}") if request.url != index.as_uri() else None
    )
    page.goto(index.as_uri())
    found = page.evaluate("document.scrollingElement.scrollWidth")
    if found > width:
        faults.append(f"the page is {found} px wide in a window of {width} px")
    return page


def pictures(browser: Browser, index: Path, faults: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each picture."""
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            yield f"{width}-{scheme}", open_report(browser, index, scheme, width, faults).screenshot()
    with TemporaryDirectory() as folder:
        document = Path(folder, "report.pdf")
        open_report(browser, index, "light", WIDTHS[-1], faults).pdf(path=document, format="A4")
        command = [
            "pdftoppm",
            "-png",
            "-singlefile",
            "-r",
            str(PRINT_DPI),
            str(document),
            str(document.with_suffix("")),
        ]
        subprocess.run(command, check=True)
        yield "print", document.with_suffix(".png").read_bytes()


def main(report: Path, name: str) -> int:
    """Write the pictures; return the exit status."""
    faults: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for suffix, png in pictures(browser, (report / "index.html").resolve(), faults):
            save(png, IMAGES / f"report-{name}-{suffix}.png")
        browser.close()
    print("\n".join(faults) or "no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
