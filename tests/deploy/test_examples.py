"""The examples in deploy/: units that systemd understands, commands that exist, folders apart."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import trouble_with

FOLDER = Path(__file__).parents[2] / "deploy"
yaml = pytest.importorskip("yaml")
UNITS = sorted(FOLDER.glob("*.service"))
COMMAND = re.compile(r"(?:command:|(?:^|[/\s])fedwatt) ((?:deploy|data) [^#`\n]+)", re.MULTILINE)


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_commands_and_their_options_exist(path: Path) -> None:
    found = COMMAND.findall(path.read_text(encoding="utf-8"))
    assert found or path.name == "Dockerfile"
    for line in found:
        assert not trouble_with(line.strip())


def test_a_wrong_option_would_be_found() -> None:
    assert COMMAND.findall("ExecStart=/opt/bin/fedwatt deploy server --port 1\n") == [
        "deploy server --port 1"
    ]
    assert trouble_with("deploy server --port 1").endswith("has no option --port")
    assert trouble_with("deploys server").endswith("is no command")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_understands_the_units(unit: Path, tmp_path: Path) -> None:
    # It wants the program to be there: any will do.
    text = unit.read_text(encoding="utf-8").replace("/opt/fedwatt/bin/fedwatt", sys.executable)
    (tmp_path / unit.name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)],
        capture_output=True,
        text=True,
    )
    # It goes on to complain of other units of the machine, which are none of ours.
    mine = [line for line in done.stderr.splitlines() if unit.stem in line]
    assert mine == []


def test_the_depot_and_a_vehicle_on_one_machine_have_folders_of_their_own() -> None:
    found = {unit.stem: set(re.findall(r"/var/lib/[\w-]+", unit.read_text())) for unit in UNITS}
    assert found == {
        "fedwatt-dashboard": {"/var/lib/fedwatt-server"},
        "fedwatt-server": {"/var/lib/fedwatt-server"},
        "fedwatt-vehicle": {"/var/lib/fedwatt-vehicle"},
    }
    for unit in UNITS:
        # systemd makes the folder and leaves it writable, and nothing else.
        (own,) = found[unit.stem]
        assert f"StateDirectory={own.removeprefix('/var/lib/')}\n" in unit.read_text()


def test_a_container_holds_one_vehicle_and_its_own_keys() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    cars = [name for name in services if name != "server"]
    assert len(cars) == 3
    for name in cars:
        assert services[name]["volumes"] == [
            f"./fleet/{name}:/data:ro",
            f"./depot/vehicles/{name}:/keys:ro",
            f"{name}:/state",
        ]
        assert services[name]["read_only"] is True
