"""Recordings of real vehicles, which are never committed: tests that need them skip without."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[2] / "shared" / "data"


def real_file(name: str) -> Path:
    """The file `name` of $FEDWATT_DATA, or of shared/data beside the clone; a skip without it."""
    file = Path(os.environ.get("FEDWATT_DATA") or BESIDE) / name
    if not file.is_file():
        pytest.skip(f"{file} does not exist: set FEDWATT_DATA to the folder that holds {name}")
    return file
