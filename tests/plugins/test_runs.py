"""Runs with a plugin: every command takes it, a run card records it, and a run folder never executes it."""

import hashlib
import json
import logging
import shutil
from pathlib import Path

import pytest
import yaml

from structattn.loading.runs import load
from structattn.runs.folder import RunFolder
from structattn.settings.run import load_settings
from structattn.settings.sweep import load_sweep
from structattn.support.errors import CheckpointError, SettingsError
from structattn.support.plugins import load_plugin
from structattn.training.run_training import train

DECAY = Path(__file__).with_name("decay.py")
CALL = (
    r"needs the plugin decay.py, version 1.0, sha256 \w{64}, which is not loaded, .* add --plugin decay.py; in Python"
)


@pytest.fixture
def run(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "run"))


def files(folder):
    names = ("events.jsonl", "checkpoints/4/model.safetensors", "checkpoints/4/optimizer.safetensors")
    return [(folder / name).read_bytes() for name in names]


def test_the_run_card_records_it(run):
    digest = hashlib.sha256(DECAY.read_bytes()).hexdigest()
    assert RunFolder(run).read_card()["plugins"] == [{"name": "decay.py", "version": "1.0", "sha256": digest}]
    assert "plugins" not in yaml.safe_load((run / "settings.yaml").read_text())


def test_a_run_without_what_it_registers_does_not_record_it(recipe, tmp_path, structattn):
    path = recipe(model={"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": 1})
    assert structattn("train", path, "-o", tmp_path / "run", "--plugin", DECAY).exit_code == 0
    assert "plugins" not in RunFolder(tmp_path / "run").read_card()


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["evaluate", "run"], "cross-entropy"),
        (["inspect", "run"], "plugin decay.py"),
        (["explore", "run", "--example", "0", "--save", "record.json"], "record.json"),
        (["export", "run", "hub", "--to", "safetensors"], "hub"),
        (["report", "run", "-o", "report"], "report"),
        (["train", "--resume", "-o", "run", "training.max_updates=6"], "ended (updates) after 6 updates"),
        (["train", "plain.yaml", "-o", "other", "--from", "run"], "ended (updates) after 4 updates"),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("without_drawing")
def test_commands_take_it_and_refuse_without_it(run, recipe, tmp_path, monkeypatch, structattn, command, shown):
    monkeypatch.chdir(tmp_path)
    recipe("plain.yaml", model={"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": "softmax-2+decay"})
    refused = structattn(*command)
    if "plain.yaml" in command:
        assert refused.exit_code == 1
    else:
        with pytest.raises(SettingsError, match=CALL):
            RunFolder(run).read_settings()
    assert refused.exit_code != 0
    done = structattn(*command, "--plugin", DECAY)
    assert done.exit_code == 0, done.output
    assert shown in done.output


def test_python_refuses_until_it_is_imported(run):
    with pytest.raises(SettingsError, match=CALL):
        load(run)
    with pytest.raises(SettingsError, match=CALL):
        train(None, run, resume=True)
    load_plugin(str(DECAY))
    trained = load(run, device="cpu")
    assert {type(each).__name__ for each in trained.model.modules()} >= {"DecayAttention", "SoftmaxAttention"}
    weights = [record.weights for record in trained.explain(["(())"])[0] if record.mechanism == "decay"]
    assert len(weights) == 2
    assert all((each.sum(-1) - 1 < 1e-6).all() for each in weights)
    assert len(trained.generate(n=3)[0]) == 3


def test_interrupted_runs_are_byte_identical(recipe, tmp_path, interrupted, decay):
    settings = load_settings(recipe())
    assert decay.name == "decay.py"
    train(settings, tmp_path / "through")
    interrupted(settings, tmp_path / "resumed", 2, 3)
    assert files(tmp_path / "through") == files(tmp_path / "resumed")


def test_an_edited_plugin_is_told_and_not_resumed(run, tmp_path, structattn, caplog):
    (tmp_path / "decay.py").write_text(f"{DECAY.read_text()}# edited\n")
    load_plugin(str(tmp_path / "decay.py"))
    with caplog.at_level(logging.WARNING):
        load(run)
    digests = hashlib.sha256(DECAY.read_bytes()).hexdigest(), load_plugin(str(tmp_path / "decay.py")).sha256
    change = f"decay.py: SHA-256 was {digests[0]} and is now {digests[1]}"
    assert f"run: computes with another plugin than it was trained with: {change}" in caplog.text
    with pytest.raises(CheckpointError, match=f"run: cannot resume with another plugin: {change}"):
        train(None, run, resume=True, limits={"max_updates": 6})
    result = structattn("train", "--resume", "-o", run, "training.max_updates=6", "--plugin", tmp_path / "decay.py")
    assert result.exit_code == 1


class TestAttack:
    """A run folder that names a plugin, which lies in it."""

    @pytest.fixture
    def folder(self, run):
        (run / "evil.py").write_text(f"from pathlib import Path\nPath('executed').touch()\n{DECAY.read_text()}")
        (run / "decay.py").write_text((run / "evil.py").read_text())
        text = b"plugins: [evil.py]\n" + RunFolder(run).read_settings_text()
        (run / "settings.yaml").write_bytes(text + f"# sha256: {hashlib.sha256(text).hexdigest()}\n".encode())
        return run

    @pytest.mark.parametrize(
        "command",
        [
            ["evaluate", "run"],
            ["generate", "run"],
            ["inspect", "run"],
            ["report", "run", "-o", "report"],
            ["explore", "run"],
            ["train", "--resume", "-o", "run"],
            ["train", "run/settings.yaml", "-o", "new"],
            ["train", "recipe.yaml", "-o", "new", "--from", "run"],
            ["train", "recipe.yaml", "-o", "new", "plugins=[run/evil.py]"],
        ],
        ids=" ".join,
    )
    def test_executes_nothing(self, folder, tmp_path, monkeypatch, structattn, command):
        monkeypatch.chdir(tmp_path)
        result = structattn(*command)
        assert result.exit_code != 0
        assert not (tmp_path / "executed").exists()
        assert folder.exists()
        assert not (tmp_path / "new").exists()

    def test_the_message_has_the_call(self, folder):
        with pytest.raises(SettingsError, match=CALL):
            RunFolder(folder).read_settings()
        (folder / "run.json").unlink()
        with pytest.raises(SettingsError, match=r"plugins\.0: needs the plugin evil\.py, .* add --plugin evil\.py"):
            RunFolder(folder).read_settings()

    def test_a_recipe_in_it_is_not_one_of_the_user(self, folder):
        with pytest.raises(SettingsError, match=r"plugins\.0: needs the plugin evil\.py"):
            load_settings(folder / "settings.yaml")

    def test_so_does_that_of_a_sweep(self, tmp_path, monkeypatch, structattn):
        monkeypatch.chdir(tmp_path)
        shutil.copy(DECAY, "evil.py")
        Path("evil.py").write_text(f"open('executed', 'w')\n{DECAY.read_text()}")
        Path("sweep.yaml").write_text("plugins: [evil.py]\nbase: {task: formal_language, model: {layers: decay}}\n")
        for command in (["report", "."], ["compare", ".", "--by", "model"]):
            assert structattn(*command).exit_code != 0
            assert not Path("executed").exists()
        Path("trials.json").write_text("{}")
        assert structattn("sweep", "sweep.yaml", "-o", "out").exit_code != 0
        assert not Path("executed").exists()

    def test_what_the_user_names_is_executed(self, folder, tmp_path, monkeypatch, structattn):
        monkeypatch.chdir(tmp_path)
        structattn("evaluate", folder, "--plugin", folder / "evil.py")
        assert (tmp_path / "executed").exists()


def test_scores_of_registered_positions_have_no_graph(plugin, recipe, tmp_path, structattn):
    pytest.importorskip("onnx")
    path = plugin(
        "class Slope(Settings):\n    kind: Literal['slope']\n"
        "def slope(num_heads, size, settings):\n    return structattn.attention.positions.AlibiPositions(num_heads)\n"
        "structattn.register(Positions(Slope, scores=slope))\n"
    )
    model = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": 1, "positions": "slope"}
    assert structattn("train", recipe(model=model), "-o", tmp_path / "run", "--plugin", path).exit_code == 0
    refused = structattn("export", tmp_path / "run", tmp_path / "graph", "--to", "onnx")
    assert "model.positions: slope cannot be exported to onnx" in refused.stderr


def test_a_recipe_names_it(recipe, tmp_path, monkeypatch, structattn):
    shutil.copy(DECAY, tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = structattn("train", recipe(plugins=["decay.py"]), "-o", "run")
    assert done.exit_code == 0, done.output
    recorded = RunFolder(Path("run")).read_card()["plugins"]
    assert [each["name"] for each in recorded] == ["decay.py"]
    with pytest.raises(SettingsError, match=r"recipe.yaml: plugins: plugin .*missing.py: No such file"):
        load_settings(recipe(plugins=["missing.py"]))
    with pytest.raises(SettingsError, match=r"plugins: expected a list"):
        load_settings(recipe(plugins=3))


SWEEP = {
    "grid": {"model": {"plain": {"model.layers": "1"}, "decay": {"model.layers": "1.decay-2"}}},
    "evaluate": {"test": "selected"},
}


@pytest.mark.usefixtures("without_drawing")
def test_workers_of_a_sweep_get_it(dyck, tmp_path, monkeypatch, structattn, forget):
    monkeypatch.chdir(tmp_path)
    shutil.copy(DECAY, tmp_path)
    model = {"d_model": 8, "num_heads": 2, "d_ff": 8}
    base = {"task": "formal_language", "data": str(dyck), "model": model, "training": {"max_updates": 2}}
    Path("base.yaml").write_text(json.dumps({"plugins": ["decay.py"], **base}))
    Path("sweep.yaml").write_text(json.dumps({"base": "base.yaml", **SWEEP}))
    done = structattn("sweep", "sweep.yaml", "-o", "sweep", "--workers", "2", "--json")
    assert done.exit_code == 0, done.output
    cards = [RunFolder(path).read_card() for path in Path("sweep/runs").iterdir()]
    assert sorted(len(card.get("plugins", [])) for card in cards) == [0, 1]
    forget()
    refused = structattn("report", "sweep", "-o", "page")
    assert refused.exit_code == 1
    assert "plugins.0: needs the plugin decay.py, which is not loaded" in refused.stderr
    assert structattn("report", "sweep", "-o", "page", "--plugin", DECAY).exit_code == 0


def test_the_settings_within_a_sweep_may_name_it(dyck, tmp_path):
    shutil.copy(DECAY, tmp_path)
    base = {"task": "formal_language", "data": str(dyck), "plugins": ["decay.py"], "model": {"layers": "1.decay-4"}}
    (tmp_path / "sweep.yaml").write_text(json.dumps({"base": base}))
    assert load_sweep(tmp_path / "sweep.yaml").base["model"]["layers"] == "1.decay-4"


@pytest.mark.slow
def test_processes_that_train_together_get_it(recipe, tmp_path, structattn):
    training = {"max_updates": 2, "devices": 2, "gradient_accumulation_steps": 2, "num_threads": 1}
    done = structattn("train", recipe(training=training), "-o", tmp_path / "run", "--plugin", DECAY)
    assert done.exit_code == 0, done.output
