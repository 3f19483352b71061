"""Pages from templates, and figures as files and as markup that follows a page's colours.

Templates are escaped, and a name that one does not get is an error. All pages include the report's
style sheet, "style.css.jinja", so that they look the same.
"""

import io
import re
from collections.abc import Mapping
from html import escape
from typing import Any, Final, Literal
from urllib.parse import unquote

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from fedwatt.report.style import STYLE, in_style


def fill(package: str, template: str, **values: Any) -> str:
    """Return the text of `template`, a file in the folder templates/ of `package`.

    A template may include those of the report.
    """
    pages = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("fedwatt.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template(template).render(**values)


DATES: Final[dict[str, dict[str, Any]]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def saved(figure: Figure, kind: str = "svg", *, dpi: int | Literal["figure"] = "figure") -> bytes:
    """Return the figure as an "svg", "pdf" or "png" file, the same bytes every time."""
    out = io.BytesIO()
    with in_style(STYLE):
        figure.savefig(out, format=kind, metadata=DATES.get(kind), dpi=dpi)
    return out.getvalue()


def inline(svg: bytes, name: str, title: str, colours: Mapping[str, str]) -> Markup:
    """Return an SVG file of `saved` as an <svg> element.

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
