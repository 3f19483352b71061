"""Pages from templates: escaped, and with an error for every name that a template does not get.

All pages include the report's style sheet, "style.css.jinja", so that they look the same.
"""

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


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
