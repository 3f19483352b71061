"""The limits check, on a made-up tree."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.limits import Limits, findings

SCRIPT = Path(__file__).parents[1] / "tools" / "limits.py"


@pytest.fixture
def library(tmp_path):
    """A library of 13 lines: a function of 4 lines, and `Cell` in two layers."""
    function = "@staticmethod\ndef f():\n    x = 1\n\n    g()\n"
    files = {
        "engine/batch.py": f"class Cell:\n    pass\n\n\n{function}",
        "engine/kernels/deep.py": "class Grid:\n    pass\n",
        "data/cell.py": "class Cell:\n    pass\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_what_is_exactly_at_its_limit_is_within_it(library):
    assert list(findings(library, Limits(function=4, file=9, library=13))) == []


def test_each_measure_is_named_with_its_place_and_its_limit(library):
    batch = library / "engine/batch.py"
    assert list(findings(library, Limits(function=3, file=8, library=12))) == [
        f"{batch}:1: file has 9 lines, limit 8",
        f"{batch}:6: function f has 4 lines, limit 3",
        f"{library}:1: library has 13 lines, limit 12",
    ]


def test_a_class_name_is_refused_twice_in_a_layer_and_allowed_in_two(library):
    deep = library / "engine/kernels/deep.py"
    deep.write_text("class Grid:\n    class Cell:\n        pass\n")
    assert list(findings(library, Limits())) == [
        f"{deep}:2: class Cell is there twice, limit 1: also {library / 'engine/batch.py'}:1"
    ]


def test_the_script_ends_with_status_1_if_anything_is_over(library):
    def run():
        return subprocess.run(
            [sys.executable, SCRIPT, library], capture_output=True, text=True, check=False
        )

    assert run().returncode == 0
    (library / "long.py").write_text("\n" * 401)
    ended = run()
    assert ended.returncode == 1
    assert ended.stdout == f"{library / 'long.py'}:1: file has 401 lines, limit 400\n"
