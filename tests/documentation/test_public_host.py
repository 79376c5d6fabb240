"""What a public host reads: workflows, forms, citation, and the address that all name."""

import re
import shutil
import subprocess
import tomllib
from importlib.util import module_from_spec, spec_from_file_location

import pytest
import yaml
from pages import PAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
HOSTED = [*PAGES, *ROOT.glob("*.md"), ROOT / "CITATION.cff", *ROOT.glob(".github/**/*.yml")]


def jobs(name):
    return yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text("utf-8"))["jobs"]


def steps():
    return [step for path in WORKFLOWS for job in jobs(path.stem).values() for step in job["steps"]]


def test_every_supported_python_is_tested_on_every_system():
    supported = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    tested = jobs("ci")
    assert tested["test"]["strategy"]["matrix"]["python"] == supported
    assert tested["test-windows"]["strategy"]["matrix"]["python"] == supported
    systems = [*tested["test"]["strategy"]["matrix"]["os"], tested["test-windows"]["runs-on"]]
    assert [name.partition("-")[0] for name in systems] == ["ubuntu", "macos", "windows"]


def test_workflows_run_what_exists():
    commands = "\n".join(step.get("run", "") for step in steps())
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {"lint", "test", "docs"} <= {*re.findall(r"\bmake (\S+)", commands)} <= {*targets}
    paths = re.findall(r"(?<![\w/])(?:tests|tools)/[\w/.]+", commands)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_actions_of_others_are_pinned_to_commits():
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []


@pytest.mark.skipif(shutil.which("zizmor") is None, reason="zizmor is not installed; pip install zizmor")
def test_the_linter_of_workflows_finds_nothing():
    found = subprocess.run(["zizmor", "--offline", *WORKFLOWS], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_all_files_name_the_address_of_the_project():
    repository, site = PROJECT["urls"]["Repository"], PROJECT["urls"]["Documentation"]
    addresses = [
        (path.name, address)
        for path in HOSTED
        for address in re.findall(r"https://[\w./-]*structattn[^\s\"')>]*", path.read_text("utf-8"))
    ]
    assert addresses
    assert [each for each in addresses if not each[1].startswith((repository, site))] == []


def test_the_citation_names_the_released_version_and_the_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    page = (ROOT / "docs/cite.md").read_text("utf-8")
    assert f"version = {{{PROJECT['version']}}}" in page
    assert all(paper["title"].split(":")[0].split("Gaussian")[0] in page for paper in citation["references"])
    cited = re.findall(r"\| `([a-z]+-[\w-]+)` \|$", page, re.MULTILINE)
    assert cited
    assert {*cited} == {*re.findall(r"@inproceedings\{([\w-]+),", page)}


@pytest.fixture
def add_version():
    spec = spec_from_file_location("add_version_to_site", ROOT / "tools/add_version_to_site.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.add_version


def test_each_version_of_the_site_has_a_folder(add_version, tmp_path):
    built, site = tmp_path / "built", tmp_path / "site"
    built.mkdir()
    site.mkdir()
    for version in ("main", "v0.9.0", "v0.10.0", "main"):
        (built / "index.html").write_text(version)
        add_version(built, site, version)
    assert (site / "v0.9.0/index.html").read_text() == "v0.9.0"
    assert "url=v0.10.0/" in (site / "index.html").read_text()
    listed = re.findall(r'href="(.*?)/"', (site / "versions.html").read_text())
    assert listed == ["v0.10.0", "v0.9.0", "main"]


@pytest.mark.parametrize("name", ["..", "a/b", ""])
def test_a_version_stays_in_its_folder(add_version, tmp_path, name):
    with pytest.raises(ValueError, match="expected the name of a tag or branch"):
        add_version(tmp_path, tmp_path, name)
