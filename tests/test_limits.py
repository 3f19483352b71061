"""The limits check, on a made-up tree."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tools.limits import Limits, counts, findings

SCRIPT = Path(__file__).parents[1] / "tools" / "limits.py"


@pytest.fixture
def library(tmp_path):
    """Three files with 36 tokens: a function of 4 lines."""
    function = "@staticmethod\ndef f():\n    x = 1\n\n    g()\n"
    files = {
        "engine/batch.py": f"class Cell:\n    pass\n\n\n{function}",
        "engine/kernels/deep.py": "class Grid:\n    pass\n",
        "data/cell.py": "class Case:\n    pass\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_what_is_exactly_at_its_limit_is_within_it(library):
    # class Cell : pass = 4, three times; @ staticmethod def f ( ) : = 7, x = 1 = 3, g ( ) = 3.
    assert list(findings(library, Limits(function=4, file=9, files=3, tokens=25))) == []


def test_each_measure_is_named_with_its_place_and_its_limit(library):
    batch = library / "engine/batch.py"
    assert list(findings(library, Limits(function=3, file=8, files=2, tokens=24))) == [
        f"{batch}:1: file has 9 lines, limit 8",
        f"{batch}:6: function f has 4 lines, limit 3",
        f"{library}:1: library has 25 tokens, limit 24",
        f"{library}:1: library has 3 files, limit 2",
    ]


def test_a_class_name_is_refused_twice(library):
    deep = library / "engine/kernels/deep.py"
    deep.write_text("class Grid:\n    class Cell:\n        pass\n")
    assert list(findings(library, Limits())) == [
        f"{deep}:2: class Cell is there twice, limit 1: also {library / 'engine/batch.py'}:1"
    ]


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("own = 1\n", "vague_names"),
        ("def f(known):\n    pass\n", "vague_names"),
        ('"""What it is."""\n', "openers"),
        ("a, b = x, y\n", "packed"),
        ("x = 1  # fmt: skip\n", "skips"),
    ],
)
def test_language_is_counted(text, measure):
    measured = counts(text, ast.parse(text))
    assert {name for name, count in measured.items() if count} - {"tokens", "files"} == {measure}


def test_a_swap_is_not_packed_and_docstrings_are_not_tokens():
    measured = counts('"""A module."""\na, b = b, a\n', ast.parse("a, b = b, a\n"))
    assert measured["packed"] == 0
    text = '"""A module."""\nx = 1\n'
    assert counts(text, ast.parse(text))["tokens"] == 3


def test_the_script_ends_with_status_1_if_anything_is_over(library):
    def run():
        return subprocess.run(
            [sys.executable, SCRIPT, library], capture_output=True, text=True, check=False
        )

    assert run().returncode == 0
    (library / "long.py").write_text("\n" * 501)
    ended = run()
    assert ended.returncode == 1
    assert ended.stdout == f"{library / 'long.py'}:1: file has 501 lines, limit 500\n"
