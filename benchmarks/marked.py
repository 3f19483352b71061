"""Blocks of a page that are written from records: between <!-- NAME --> and <!-- /NAME -->."""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fedwatt.files import write_text


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """`text` with each block in its place, of which there must be one.

    >>> filled("<!-- a -->old<!-- /a --> stays", {"a": "new"})
    '<!-- a -->\\n\\nnew\\n\\n<!-- /a --> stays'
    """
    for name, block in blocks.items():
        begin = f"<!-- {name} -->"
        end = f"<!-- /{name} -->"
        replacement = f"{begin}\n\n{block}\n\n{end}"
        place = f"{re.escape(begin)}.*?{re.escape(end)}"
        text, times = re.subn(place, _as_it_is(replacement), text, flags=re.DOTALL)
        if times != 1:
            sys.exit(f"There are {times} places between '{begin}' and '{end}'; one is needed.")
    return text


def _as_it_is(text: str) -> Callable[[re.Match[str]], str]:
    """Return a replacement in which a backslash is a backslash."""
    return lambda _: text


def write_blocks(page: Path, blocks: Mapping[str, str]) -> None:
    """Put every block in its place on the page."""
    write_text(page, filled(page.read_text(encoding="utf-8"), blocks))
