"""Figures as SVG and PDF, and as markup inside a page that follows its colours."""

import io
import re
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import unquote

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from fedwatt.report.style import STYLE


def to_svg(figure: Figure) -> bytes:
    """The figure as an SVG file, the same bytes every time."""
    return _saved(figure, "svg", {"Date": None})


def to_pdf(figure: Figure) -> bytes:
    """The figure as a PDF file, the same bytes every time."""
    return _saved(figure, "pdf", {"CreationDate": None})


def _saved(figure: Figure, kind: str, metadata: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(out, format=kind, metadata=metadata)
    return out.getvalue()


def inline(svg: bytes, name: str, title: str, colours: Mapping[str, str]) -> Markup:
    """An SVG file of `to_svg` as an <svg> element.

    `colours` maps a colour of the figure to the CSS variable that replaces it. What belongs to a
    method carries its label in `data-series`. Identifiers get `name` before them, because several
    figures share one page.
    """
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(
        r'id="series:([^"]*)"', lambda mark: f'data-series="{escape(unquote(mark[1]))}"', text
    )
    text = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'href="#([^"]*)"', rf'href="#{name}-\1"', text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)
    for colour, variable in colours.items():
        text = re.sub(re.escape(colour), f"var({variable})", text, flags=re.IGNORECASE)
    view = re.search(r'viewBox="[^"]*"', text)
    opening = (
        f'<svg {view.group() if view else ""} xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" role="img" aria-label="{escape(title)}">'
    )
    return Markup(opening + text[text.index(">") + 1 :])
