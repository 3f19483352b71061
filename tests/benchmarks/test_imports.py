"""Every benchmark can be imported, and so has followed the library's names."""

from importlib import import_module
from pathlib import Path

import pytest

import benchmarks
import fedwatt.cli  # noqa: F401  benchmarks.cli adds its commands to it

FOLDER = Path(benchmarks.__file__).parent
MODULES = sorted({path.stem for path in FOLDER.glob("*.py")} - {"__init__"})


@pytest.mark.parametrize("module", MODULES)
def test_a_benchmark_can_be_imported(module: str) -> None:
    import_module(f"benchmarks.{module}")
