"""Run the tutorials: `python tools/tutorials.py [PAGE ...]` writes what they print, and notebooks.

A page of docs/tutorials is the only source. Its `python` and `bash` blocks run in order, in one
empty folder and one Python session; what they print stands below them in `output` blocks. The
notebook of the same name in notebooks/ has the same cells. `bash` blocks hold `fedwatt` commands,
which run in this process; commands in `console` blocks are shown and not run. A `python` block with
a title is a file of that name.
"""

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from typer.testing import CliRunner

from fedwatt.cli import app

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
NOTEBOOKS = ROOT / "notebooks"
_BLOCK = re.compile(
    r'^```(python|bash)(?: title="(.*?)")?\n(.*?)^```\n(?:\n```output\n(.*?)^```\n)?', re.M | re.S
)
_PROGRESS = re.compile(r"^[^:]+: (?:round|trial) (\d+)/(\d+) ")


@dataclass(frozen=True)
class Cell:
    """A stretch of a page.

    kind    "markdown", "python" or "bash"
    output  what it prints
    file    the file that it is written to, in place of being run; "" for all others
    """

    kind: str
    text: str
    output: str = ""
    file: str = ""


def cells(page: str) -> list[Cell]:
    """Split a page into cells; `written` joins them."""
    found = []
    end = 0
    for block in _BLOCK.finditer(page):
        if text := page[end : block.start()].strip("\n"):
            found.append(Cell("markdown", text))
        found.append(Cell(block[1], block[3], block[4] or "", block[2] or ""))
        end = block.end()
    if text := page[end:].strip("\n"):
        found.append(Cell("markdown", text))
    return found


def written(page: list[Cell]) -> str:
    """Return the page of these cells."""
    parts = []
    for cell in page:
        if cell.kind == "markdown":
            parts.append(cell.text + "\n")
            continue
        title = f' title="{cell.file}"' if cell.file else ""
        parts.append(f"```{cell.kind}{title}\n{cell.text}```\n")
        if cell.output:
            parts.append(f"```output\n{cell.output}```\n")
    return "\n".join(parts)


def commands(cell: Cell) -> Iterator[list[str]]:
    """Return the words after `fedwatt` of every command of a `bash` cell."""
    for line in cell.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["fedwatt"]:
            raise ValueError(f"A bash block of a tutorial runs fedwatt only, not: {line}")
        yield words[1:]


def printed(cell: Cell, names: dict[str, object]) -> str:
    """Run a cell in the current folder and return its standard output."""
    if cell.file:
        Path(cell.file).write_text(cell.text, encoding="utf-8")
        return ""
    if cell.kind == "python":
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(cell.text, "tutorial", "exec"), names)
        return out.getvalue()
    text = ""
    for words in commands(cell):
        done = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
        if done.exit_code:
            raise RuntimeError(f"fedwatt {shlex.join(words)}\n{done.output}") from done.exception
        text += done.stdout
    return text


def executed(page: list[Cell]) -> list[Cell]:
    """Return the cells with their present outputs."""
    names: dict[str, object] = {"__name__": "__main__"}
    return [cell if cell.kind == "markdown" else _with_output(cell, names) for cell in page]


def _with_output(cell: Cell, names: dict[str, object]) -> Cell:
    lines = [line.rstrip() for line in printed(cell, names).strip("\n").splitlines()]
    # Of the lines of progress only each method's last one is kept.
    kept = [line for line in lines if not (found := _PROGRESS.search(line)) or found[1] == found[2]]
    return replace(cell, output="\n".join(kept) + "\n" if kept else "")


def notebook(page: list[Cell]) -> str:
    """Return the same cells as a Jupyter notebook, format 4.5."""
    made = []
    for number, cell in enumerate(page):
        entry: dict[str, object] = {"id": f"cell-{number}", "metadata": {}}
        if cell.kind == "markdown":
            made.append(entry | {"cell_type": "markdown", "source": _lines(_relinked(cell.text))})
            continue
        # `!` hands a line to the shell.
        text = f"%%writefile {cell.file}\n{cell.text}" if cell.file else cell.text
        if cell.kind == "bash":
            text = re.sub(r"^(?=fedwatt)", "!", text, flags=re.M)
        outputs = [{"name": "stdout", "output_type": "stream", "text": _lines(cell.output)}]
        entry |= {"cell_type": "code", "execution_count": None, "source": _lines(text.rstrip("\n"))}
        made.append(entry | {"outputs": outputs if cell.output else []})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": made, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _relinked(text: str) -> str:
    """Links of a page, from the folder of the notebooks."""
    text = re.sub(r"\]\((?!https?:|\.\./|#)", "](../docs/tutorials/", text)
    return text.replace("](../", "](../docs/").replace("](../docs/docs/", "](../docs/")


def main() -> None:
    """Run the pages named, or all, and write their output and notebooks."""
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or PAGES
    for page in chosen:
        before = cells(page.read_text(encoding="utf-8"))
        home = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            after = executed(before)
            os.chdir(home)
        page.write_text(written(after), encoding="utf-8")
        (NOTEBOOKS / f"{page.stem}.ipynb").write_text(notebook(after), encoding="utf-8")
        print(page.name)


if __name__ == "__main__":
    main()
