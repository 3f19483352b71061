"""Lists of methods, models and the rest, with what installed packages add to them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from tests.examples import EXAMPLES


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with three methods, of which one is broken and one hidden, and a model."""
    subject = tmp_path / "sharp-1.0.dist-info"
    subject.mkdir()
    (subject / "METADATA").write_text("Metadata-Version: 2.1\nName: sharp\nVersion: 1.0\n")
    (subject / "entry_points.txt").write_text(
        "[fedwatt.methods]\nsharp = sharp:sam\nsam = sharp:sam\nbroken = sharp:nothing\n"
        "[fedwatt.models]\nconv = conv1d:Conv\n"
    )
    for name, example in (("sharp", "sam"), ("conv1d", "conv")):
        code = (EXAMPLES / f"{example}.py").read_text(encoding="utf-8")
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("sharp", "conv1d"):
        sys.modules.pop(name, None)


def output_of(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    return done.output


def test_methods(package: None) -> None:
    text = " ".join(output_of("list").split())
    assert (
        "sharp sharp 1.0 FedSAM: every step takes the gradient where the loss is worst nearby."
        in text
    )
    assert "sharp 1.0" in text
    assert "sharp defines no 'nothing', which 'broken' asks for" in text
    assert "sam sharp 1.0 hidden by fedwatt's method of this name" in text
    assert "SharpnessAware + Fractional → Average" in output_of("list", "sharp+fractional")


def test_a_file(package: None) -> None:
    text = output_of("list", f"{EXAMPLES}/fedavgm.py:fedavgm")
    assert "plain SGD → AverageWithMomentum" in text
    assert f"{EXAMPLES}/fedavgm.py" in text


def test_the_others(package: None) -> None:
    lines = output_of("list").splitlines()
    (plugin_line,) = [line for line in lines if "conv" in line]
    assert plugin_line.split()[:4] == ["model", "conv", "sharp", "1.0"]
    assert any(line.startswith("target") and "energy" in line for line in lines)
