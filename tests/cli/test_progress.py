"""The output of a run: lines and tables that lose nothing on a narrow screen."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from rich.console import Console

from fedwatt.cli.console import ruled_table
from fedwatt.cli.options import resumable
from fedwatt.cli.progress import RunView, describe_elevation
from fedwatt.elevation.settings import ElevationSettings


def test_long_names_are_folded_and_not_cut() -> None:
    header = ["Method", "RMSE, shared (Wh)", "RMSE, personalised (Wh)", "ε"]
    rows = [["fractional+scaffold", *["123.4 ± 56.7"] * 3], ["fo-ri-fedavg@adam", *["1.2"] * 3]]
    screen = Console(file=io.StringIO(), width=40)
    screen.print(ruled_table("Test error", header, rows))
    output = screen.file.getvalue()
    assert "…" not in output
    first = "".join(line[:10].strip() for line in output.splitlines()[4:])
    assert "fractional" in first and "+scaffold" in first and "fo-ri-feda" in first


def test_one_is_not_many() -> None:
    log = io.StringIO()
    lines = RunView(Console(file=log))
    lines.on_start("fedavg", 0, 1)
    lines.on_start("fedavg", 1, 3)
    assert log.getvalue() == (
        "fedavg: training 1 round\nfedavg: continuing after round 1 of 3 rounds\n"
    )


def test_hills_without_private_ground_are_none_at_all() -> None:
    stub = SimpleNamespace(nodes=7, measured=False)
    lonely = SimpleNamespace(
        shared=SimpleNamespace(nodes=0), contributors={"car-001"}, maps={"car-001": stub}
    )
    message = describe_elevation(lonely, ElevationSettings(private=False))
    assert "a node needs 3 vehicles" in message
    assert (
        "with 1 vehicle none has as many; with elevation.private = false no vehicle has" in message
    )
    stub.nodes = 0
    assert "roads count as level: no vehicle has positions" in describe_elevation(
        lonely, ElevationSettings()
    )


def test_only_what_was_begun_can_be_continued(tmp_path: Path, capsys) -> None:
    def said_on_interrupt() -> str:
        with pytest.raises(typer.Exit) as ended, resumable(tmp_path, "Rounds", "fedwatt run"):
            raise KeyboardInterrupt
        assert ended.value.exit_code == 130
        return " ".join(capsys.readouterr().err.split())

    assert "nothing to continue" in said_on_interrupt()
    (tmp_path / "config.toml").touch()
    message = said_on_interrupt()
    assert "Rounds are kept; continue with: fedwatt run --resume --out" in message
