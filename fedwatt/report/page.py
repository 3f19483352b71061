"""Pages from templates: escaped, and with an error for every name that a template does not get."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def fill(package: str, template: str, **values: Any) -> str:
    """The text of `template`, a file in the folder templates/ of `package`."""
    pages = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template(template).render(**values)
