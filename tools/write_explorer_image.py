"""Write the picture of docs/explorer.md.

    pip install playwright
    python tools/write_explorer_image.py PAGE FRAGMENT

PAGE is a file that `structattn explore` wrote, FRAGMENT what follows # in the URL of the view, such as
"view=stack&token=9". Needs Debian's package chromium.
"""

import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGE = Path(__file__).resolve().parents[1] / "docs" / "images" / "explorer.png"
SIZE = {"width": 1200, "height": 900}
COLOURS = 64


def main(path: Path, fragment: str) -> None:
    """Open the view, and save its picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.goto(f"{path.resolve().as_uri()}#{fragment}")
        page.wait_for_selector("#panel .toolbar")
        picture = Image.open(BytesIO(page.screenshot()))
        browser.close()
    picture.convert("RGB").quantize(COLOURS).save(IMAGE, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
