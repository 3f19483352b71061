"""Docstrings and tables as Markdown, for the pages that are generated from the code."""

import inspect
import re

_ROW = re.compile(r"^(\S(?:.*?\S)?)\s{2,}(\S.*)$")


def from_docstring(text: str) -> str:
    """Return a docstring as Markdown."""
    return "\n\n".join(map(as_markdown, paragraphs(text)))


def paragraphs(docstring: str) -> list[str]:
    """Return the paragraphs of a docstring; lines of equations keep their indentation of 4."""
    return re.split(r"\n(?:[ ]*\n)+", inspect.cleandoc(docstring))


def as_markdown(text: str) -> str:
    """Return a paragraph as Markdown; one of lines "name   meaning" becomes a table."""
    lines = text.splitlines()
    if lines[0].startswith(">>>"):
        return "```pycon\n" + text + "\n```"
    if lines[0].startswith("    ") or not _ROW.match(lines[0]):
        return text
    rows: list[tuple[str, str]] = []
    for line in lines:
        if (found := _ROW.match(line)) and not line.startswith(" "):
            rows.append((found[1], found[2]))
        elif line.startswith(" "):
            rows[-1] = rows[-1][0], f"{rows[-1][1]} {line.strip()}"
        else:
            return text
    return table(("", ""), [(f"`{name}`", meaning) for name, meaning in rows])


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Rows as a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"|{'|'.join(_cell(cell) for cell in line)}|" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
