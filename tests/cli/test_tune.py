"""`fedwatt tune` as a person types it: started, continued, refused."""

import sys
import tomllib
from pathlib import Path

import pytest

from fedwatt.cli import main
from fedwatt.runs.config import from_tables

TINY = ("--vehicles", "3", "--rounds", "2", "--seeds", "1", "--set", "model.hidden=[4]")


@pytest.fixture
def fedwatt(tmp_path: Path, monkeypatch, capfd):
    """(status, what was printed) of a command; in this process, to save starting several."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["fedwatt", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capfd.readouterr()
        return stopped.value.code, printed.out + printed.err

    return run


def test_a_study_is_made_and_continued(fedwatt, tmp_path: Path) -> None:
    methods = ("--method", "fedavg", "--method", "fedprox", "--set", "data.stride=60")
    status, message = fedwatt("tune", "--trials", "1", *methods, *TINY, "--out", "study")
    assert status == 0, message
    assert "fedprox: trial 1/1" in message
    status, message = fedwatt("tune", "--trials", "2", "--resume", "--out", "study")
    assert status == 0, message
    assert "trial 1/2" not in message
    assert "fedavg: trial 2/2" in message
    assert "fedwatt run study/best.toml" in message
    best = tomllib.loads((tmp_path / "study" / "best.toml").read_text())
    assert [method["name"] for method in best["method"]] == ["fedavg", "fedprox"]
    assert all(0.001 <= method["learning_rate"] <= 0.1 for method in best["method"])
    assert from_tables(best).training.rounds == 2
    status, message = fedwatt("tune", "--trials", "2", *methods, *TINY, "--out", "study")
    assert status == 2
    assert "already holds a run. Continue it with --resume" in message


def test_a_folder_without_a_study_is_left_alone(fedwatt, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tuning.md").write_text("mine")
    for folder in ("new", "own"):
        status, message = fedwatt("tune", "--resume", "--out", folder)
        assert status == 2
        assert f"{folder} holds no run, so there is nothing to continue" in message
    status, message = fedwatt("tune", "--out", "own")
    assert status == 2
    assert "own is not empty. Choose another --out" in message
    assert [path.name for path in tmp_path.rglob("*")] == ["own", "tuning.md"]
