"""Files of strangers that name code: no command runs it unless --trust names it."""

from pathlib import Path

import onnx
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from typer.testing import CliRunner

from fedwatt import plugins
from fedwatt.cli import app
from fedwatt.errors import SettingError
from fedwatt.runs.trained import load
from fedwatt.synthetic.fleet import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet

CODE = """
import pathlib
pathlib.Path("ran").touch()
from fedwatt.models.mlp import MLP
from fedwatt.windows.features import FEATURES
def Net(window, features):
    return MLP(window, features, (64, 32))
speed = FEATURES["speed"]
"""


def refusal(*words: str) -> str:
    """The message of a command that must fail."""
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code != 0, done.output
    return str(done.exception)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet, a finished run and a vehicle's model file, with built-in names only."""
    folder = tmp_path_factory.mktemp("trust")
    write_fleet(folder / "fleet", synthetic_vehicles(3, trips=4), "synthetic")
    run = ["run", "--data", str(folder / "fleet"), "--method", "fedavg", "--rounds", "1"]
    run += ["--seeds", "1", "--no-baselines", "--set", "data.stride=60", "--out"]
    assert CliRunner().invoke(app, [*run, str(folder / "run")]).exit_code == 0
    vehicle = min(path for path in (folder / "fleet").iterdir() if path.is_dir())
    (folder / "vehicle").symlink_to(vehicle)
    file = str(folder / "model.onnx")
    home = str(folder / "vehicle")
    made = CliRunner().invoke(
        app, ["export", str(folder / "run"), "--out", file, "--vehicle", home]
    )
    assert made.exit_code == 0, made.output
    return folder


@pytest.fixture
def tampered(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run, configuration and model file of a stranger, all of which name ./evil.py."""
    from shutil import copytree

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "_trusted", set())
    Path("evil.py").write_text(CODE)
    copytree(finished / "run", "run")
    evil = 'name = "./evil.py:Net"'
    toml = Path("run/config.toml")
    text = toml.read_text().replace('name = "mlp"', evil)
    assert evil in text
    toml.write_text(text)
    with safe_open("run/model.safetensors", framework="numpy") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    save_file(tensors, "run/model.safetensors", {"fedwatt": text})
    graph = onnx.load(finished / "model.onnx")
    for entry in graph.metadata_props:
        entry.value = entry.value.replace('"speed"', '"./evil.py:speed"')
    onnx.save(graph, "model.onnx")
    return finished


def commands(folder: Path) -> dict[str, list[str]]:
    trip = str(folder / "vehicle" / "trip-001")
    return {
        "run": ["run", "run/config.toml", "--out", "new"],
        "resume": ["run", "--resume", "--out", "run"],
        "tune": ["tune", "run/config.toml", "--trials", "1", "--out", "tuned"],
        "export": ["export", "run", "--out", "new.onnx"],
        "route": ["route", trip, "--model", "run", "--temperature", "10"],
        "predict": ["predict", "model.onnx", trip],
        "route by file": ["route", trip, "--model", "model.onnx"],
    }


@pytest.mark.parametrize("name", ["run", "resume", "tune", "export", "route", "predict"])
def test_refused(tampered: Path, name: str) -> None:
    sentence = refusal(*commands(tampered)[name])
    assert "names code" in sentence
    assert f"would run the file {Path.cwd()}/evil.py" in sentence
    assert "--trust ./evil.py" in sentence
    assert not Path("ran").exists()


@pytest.mark.parametrize("name", ["export", "predict", "resume"])
def test_runs_once_it_is_trusted(tampered: Path, name: str) -> None:
    done = CliRunner().invoke(app, [*commands(tampered)[name], "--trust", "evil.py"])
    assert Path("ran").exists(), done.exception
    # A run goes on with the code that it was begun with, and this one was begun with none.
    assert done.exit_code == 0 or (name == "resume" and "configuration" in str(done.exception))


def test_load_in_python(tampered: Path) -> None:
    with pytest.raises(SettingError, match=r"names code: the model './evil.py:Net'"):
        load("run")
    assert not Path("ran").exists()
    with pytest.raises(Exception, match=r"no checkpoint|another"):
        load("run", trust=["./evil.py"])
    assert Path("ran").exists()


def test_report_and_card_only_show(tampered: Path) -> None:
    done = CliRunner().invoke(app, ["report", "run", "--out", "pages"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["inspect", "model.onnx"])
    assert done.exit_code == 0, done.output
    assert not Path("ran").exists()


def test_a_command_of_fedwatt_is_no_model(tampered: Path) -> None:
    Path("theirs.toml").write_text('[model]\nname = "fedwatt.cli:main"\n')
    assert "would import the module 'fedwatt.cli'" in refusal("run", "theirs.toml", "--out", "new")


def test_the_users_own_words_need_no_trust(tampered: Path) -> None:
    words = ["run", "--set", "model.name=./evil.py:Net", "--rounds", "0", "--out", "new"]
    assert "names code" not in refusal(*words)
    assert Path("ran").exists()


def test_typed_methods_do_not_open_the_door_for_others(tampered: Path) -> None:
    Path("mine.py").write_text("from fedwatt.methods import Method\nsam = Method('sam')\n")
    Path("theirs.toml").write_text('[[method]]\nname = "./evil.py:sam"\n')
    words = ["run", "theirs.toml", "--method", "./mine.py:sam", "--out", "new"]
    assert "the method './evil.py:sam' would run" in refusal(*words)
    assert not Path("ran").exists()
