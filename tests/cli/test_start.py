"""Commands load what they need and no more: torch alone takes seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet

HEAVY = ("torch", "flwr", "matplotlib", "polars", "pyarrow", "scipy")
START = """
import sys
from fedwatt.cli import main
sys.argv = ["fedwatt", *{arguments!r}]
try:
    main()
finally:
    print(*sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)
"""


def test_the_package_is_the_command() -> None:
    command = [sys.executable, "-m", "fedwatt", "--version"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.startswith("fedwatt ")


def loaded(folder: Path, *arguments: str, status: int = 0) -> list[str]:
    """Which of the slow packages a command has loaded by its end, which is of this status."""
    done = subprocess.run(
        [sys.executable, "-c", START.format(arguments=arguments, heavy=HEAVY)],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stderr
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "run --help",
        "terrain learn --help",
        "deploy keys --help",
        "data import --help",
        "bench --help",
        "reproduce --help",
    ],
)
def test_help_loads_nothing(command: str, tmp_path: Path) -> None:
    assert loaded(tmp_path, *command.split()) == []


def test_keys_and_a_dry_run_need_neither_torch_nor_flower(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    for command in ("create --host 127.0.0.1", "add car-001", "list"):
        found = loaded(tmp_path, "deploy", "keys", *command.split())
        assert not {"torch", "flwr", "matplotlib", "polars", "scipy"} & set(found)
    assert (tmp_path / "depot" / "vehicles" / "car-001" / "key").is_file()
    write_fleet(tmp_path / "fleet", synthetic_vehicles(1, 0, trips=5), "synthetic")
    keys = ("--keys", "depot/vehicles/car-001")
    found = loaded(tmp_path, "deploy", "vehicle", "fleet/car-001", *keys, "--dry-run")
    assert found == ["pyarrow"]  # it has read the trips


def test_a_look_at_the_server_needs_no_torch(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    loaded(tmp_path, "deploy", "keys", "create", "--host", "127.0.0.1")
    # Nothing listens at port 1, and that is as far as this machine gets.
    found = loaded(tmp_path, "deploy", "status", "--address", "127.0.0.1:1", status=2)
    assert "flwr" in found
    assert "torch" not in found
