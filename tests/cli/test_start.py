"""Commands load what they need and no more: torch alone takes seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

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
    """Return the slow packages that a command has loaded when it ends with this status."""
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
        "elevation learn --help",
        "deploy request --help",
        "data import --help",
        "bench --help",
        "reproduce --help",
    ],
)
def test_help_loads_nothing(command: str, tmp_path: Path) -> None:
    assert loaded(tmp_path, *command.split()) == []


def test_keys_need_neither_torch_nor_flower(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    commands = (
        "owner --out office",
        "request car-001 --keys cars/car-001",
        "sign cars/car-001 --key office/key.pem",
    )
    for command in commands:
        packages = loaded(tmp_path, "deploy", *command.split())
        assert not {"torch", "flwr", "matplotlib", "polars", "scipy"} & set(packages)
    assert (tmp_path / "cars" / "car-001" / "certificate.pem").is_file()


def test_a_look_at_the_server_needs_no_torch(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    commands = (
        "owner --out office",
        "request server --keys site --hostname 127.0.0.1",
        "sign site --role server --key office/key.pem",
    )
    for command in commands:
        loaded(tmp_path, "deploy", *command.split())
    # Nothing listens at port 1, and that is as far as this machine gets.
    options = ("--store", "site", "--address", "127.0.0.1:1")
    packages = loaded(tmp_path, "deploy", "status", *options, status=2)
    assert "flwr" in packages
    assert "torch" not in packages
