"""Code of one's own in a configuration: kept, found again, and told apart when it has changed."""

import os
from pathlib import Path

import pytest

from fedwatt import plugins
from fedwatt.errors import RunError, SettingError
from fedwatt.runs.config import RunConfig, differences, from_tables, from_toml, override, to_toml
from fedwatt.runs.folder import refuse_other_run, run_hash
from fedwatt.runs.model_file import read_model_config, write_models
from fedwatt.runs.provenance import changed_since

RULE = '''"""Pulls."""
from dataclasses import dataclass
from fedwatt.methods import LocalRule, Method, Proximal

@dataclass(frozen=True, kw_only=True)
class Pull(LocalRule):
    """A pull."""
    strength: float = 0.1

pull = Method("pull", (Pull(),))
both = Method("both", (Pull(), Proximal(mu=0.2)))
'''
NET = """
from torch import nn
class Net(nn.Module):
    def __init__(self, window, features, hidden=(3,)):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(window * features, *hidden))
    def forward(self, x):
        return self.layers(x).mean(-1)
"""
FEATURE = """
from fedwatt.windows import Feature
double = Feature("m/s", ("speed_mps",), lambda x: 2 * x["speed_mps"])
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.chdir(tmp_path)
    for name, code in (("pull", RULE), ("net", NET), ("double", FEATURE)):
        Path(f"{name}.py").write_text(code)
    tables = {
        "method": [{"name": "fedavg"}, {"name": "./pull.py:pull"}],
        "model": {"name": "./net.py:Net"},
        "data": {"features": "base, ./double.py:double"},
    }
    plugins.trust("./pull.py", "./net.py", "./double.py", "./absent.py")
    plugins.trust("fedwatt.methods", "fedwatt.methods.scaffold")
    return from_tables(override(tables, ["pull.strength=0.3"]))


def test_read_back(config: RunConfig) -> None:
    assert [choice.label for choice in config.methods] == ["fedavg", "pull"]
    assert config.methods[1].method.settings == {"strength": 0.3}
    assert config.data.columns[-1] == "./double.py:double"
    again = from_toml(to_toml(config))
    assert again == config
    assert run_hash(again) == run_hash(config)
    assert set(config.plugins) == {"methods", "models", "features"}


def test_compositions(config: RunConfig) -> None:
    table = {"method": [{"name": "fractional+fedwatt.methods.scaffold:ControlVariates@scaffold"}]}
    with pytest.raises(SettingError, match="Unknown server or defence 'scaffold'"):
        from_tables(table)
    name = "fedwatt.methods.scaffold:ControlVariates+fractional@fedwatt.methods.scaffold:Scaffold"
    (choice,) = from_tables({"method": [{"name": name}]}).methods
    assert choice.label == "ControlVariates+fractional@Scaffold"
    assert choice.method.composition == "ControlVariates + Fractional → Scaffold"


def test_another_code_is_another_run(config: RunConfig, tmp_path: Path) -> None:
    before = run_hash(config)
    text = to_toml(config)
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.toml").write_text(text)
    refuse_other_run(config, out, resume=True)
    Path("pull.py").write_text(RULE + "# better\n")
    assert run_hash(config) == before  # what was loaded is what it was
    changed = from_toml(text)
    assert run_hash(changed) != before
    assert changed_since(text, changed.plugins) == {"methods": ["./pull.py:pull"]}
    with pytest.raises(
        RunError, match=r"The code of './pull.py:pull' has changed since the run in"
    ):
        refuse_other_run(changed, out, resume=True)
    assert differences(config, changed) == []


def test_models_belong_to_their_code(config: RunConfig, tmp_path: Path) -> None:
    write_models(tmp_path, {}, config)
    assert read_model_config(tmp_path) == config
    Path("pull.py").write_text(RULE + "# better\n")
    read_model_config(tmp_path)  # a method has done its work when its model is trained
    Path("net.py").write_text(NET.replace("mean", "sum"))
    with pytest.raises(RunError, match=r"'./net.py:Net' has changed since the models in .* put it"):
        read_model_config(tmp_path)


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("model.name=./absent.py:Net", "There is no file './absent.py'"),
        ("model.name=./net.py:Nut", "defines no 'Nut', .* Did you mean 'Net'"),
        ("model.name=./pull.py:pull", "is a Method; a model is a class or function that makes"),
        ("model.name=./pull.py:Pull", "is the class Pull; a model is a class or function"),
        ("data.features=./net.py:Net", "is the class Net; a feature is a Feature"),
        (
            "data.features=base,spede",
            "Unknown feature set or feature 'spede'. Did you mean 'speed'",
        ),
        ("plugins.models=1", "Unknown section or method 'plugins'"),
    ],
)
def test_one_clear_sentence(config: RunConfig, assignment: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        from_tables(override({}, [assignment]))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("./net.py:Net", "is the class Net; a method is a Method, or a rule, server or defence"),
        ("./pull.py:pull@krum+adam+yogi", "one defence and one server"),
        ("fedavg@./pull.py:pull", "stands after an @, but is neither a server nor a defence"),
        ("fedwatt.methods:ServerRule", "cannot be made with its defaults"),
    ],
)
def test_wrong_methods(config: RunConfig, name: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        from_tables({"method": [{"name": name}]})


def test_plugins_is_no_setting(config: RunConfig) -> None:
    with pytest.raises(SettingError, match="is written by fedwatt"):
        changed_since("plugins = 3", config.plugins)


def test_a_relative_path_starts_from_the_working_folder(config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    os.chdir(tmp_path / "deep")
    plugins.trust("./net.py", "./pull.py", "./double.py")
    with pytest.raises(SettingError, match=r"a relative path starts from .*deep"):
        from_toml(to_toml(config))
