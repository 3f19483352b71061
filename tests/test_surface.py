"""The public names of the package, and how little it takes to import it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedwatt


def test_every_public_name_is_there() -> None:
    for name in fedwatt.__all__:
        assert getattr(fedwatt, name) is not None
    assert set(fedwatt.__all__) <= set(dir(fedwatt))


def test_the_version_is_the_same_wherever_it_stands() -> None:
    root = Path(__file__).parents[1]
    for file, pattern in (
        ("pyproject.toml", r'^version = "(.*)"'),
        ("CITATION.cff", r"^version: (.*)"),
    ):
        matches = re.findall(pattern, (root / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert matches == [fedwatt.__version__], file


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'federate'"):
        _ = fedwatt.federate


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import fedwatt, sys; print(sorted({'torch', 'pyarrow', 'polars'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_training_runs_where_only_torch_and_numpy_are() -> None:
    # As on a GPU machine on which nothing can be installed.
    code = """
import sys
for name in ("scipy", "polars", "pyarrow", "safetensors", "matplotlib", "typer", "rich", "tomli_w"):
    sys.modules[name] = None
from fedwatt import DataSettings, Training, synthetic_fleet
from fedwatt.federation import Federation
fleet = synthetic_fleet(vehicles=2, settings=DataSettings(stride=200))
print(Federation(fleet, training=Training(rounds=1)).train("fo-ri-fedavg").state.round)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "1"
