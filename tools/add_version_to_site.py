"""Put the documentation of one version beside those of others: ``python tools/add_version_to_site.py BUILT SITE NAME``.

``BUILT`` is the built site, ``SITE`` the folder of all versions, ``NAME`` a tag as ``v0.1.0`` or a branch as ``main``.
The start page leads to the newest release, or to ``main`` before the first, and ``versions.html`` lists all.
"""

import html
import re
import shutil
import sys
from pathlib import Path

_PAGE = '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>structattn</title>{}</html>\n'
_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def versions(site: Path) -> list[str]:
    """Return the names of the versions of a site: releases from the newest on, then the others by name."""
    names = sorted(path.parent.name for path in site.glob("*/index.html"))
    releases = [name for name in names if _RELEASE.fullmatch(name)]
    releases.sort(key=lambda name: [int(part) for part in name[1:].split(".")], reverse=True)
    return releases + [name for name in names if name not in releases]


def add_version(built: Path, site: Path, name: str) -> None:
    """Replace the version ``name`` of a site by a built one, and write the pages that lead to the versions."""
    if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
        raise ValueError(f"{name!r}: expected the name of a tag or branch, of letters, digits, dots and hyphens")
    if not (built / "index.html").is_file():
        raise ValueError(f"{built}: expected a built site, with index.html")
    shutil.rmtree(site / name, ignore_errors=True)
    shutil.copytree(built, site / name)
    names = versions(site)
    items = "".join(f'<li><a href="{html.escape(each)}/">{html.escape(each)}</a></li>' for each in names)
    (site / "versions.html").write_text(_PAGE.format(f"<h1>Versions</h1><ul>{items}</ul>"), "utf-8")
    newest = f'<meta http-equiv="refresh" content="0; url={html.escape(names[0])}/">'
    (site / "index.html").write_text(_PAGE.format(newest), "utf-8")
    (site / ".nojekyll").touch()  # folders that begin with an underscore are served as well


if __name__ == "__main__":
    add_version(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
