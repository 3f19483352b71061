"""One page with every table and figure of a reproduction; figures and tables as files beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedwatt.files import write_text
from fedwatt.report.page import fill, inline, saved
from fedwatt.report.style import LOOKS, PARTS, looks, name_of
from fedwatt.report.write import VARIABLES
from reproduction.cell import METHODS
from reproduction.claims import RULES, headline, headline_verdicts, verdicts
from reproduction.lab import Lab
from reproduction.paper import printed
from reproduction.progress import progress, progress_table
from reproduction.study import NOTHING, Setting, Study, View
from reproduction.tables import made_with_table


def write_page(lab: Lab, setting: Setting, studies: Sequence[Study], path: Path) -> Path:
    """Write the page of `studies`, and tables as CSV and figures as SVG in folders beside it."""
    view = View(setting, lab)
    overview = [progress_table(progress(studies, view, lab.every)), made_with_table(lab.every)]
    for table in overview:
        write_text(path.parent / "tables" / f"{table.name}.csv", table.csv())
    rendered = [_rendered(study, view, path.parent) for study in studies]
    appearance = looks(METHODS)
    every = (*LOOKS.values(), *PARTS.values())
    text = fill(
        "reproduction",
        "reproduction.html.jinja",
        scale=setting.scale,
        verdicts=verdicts(view),
        headline=headline(view),
        headlines=headline_verdicts(view),
        rules=RULES,
        studies=rendered,
        overview=overview,
        methods=[
            {"label": m, "name": name_of(m), "colour": VARIABLES[appearance[m].colour]}
            for m in METHODS
        ],
        labels={name_of(method): method for method in METHODS},
        name_of=name_of,
        cells=len(lab.every),
        light={VARIABLES[look.colour]: look.colour for look in every},
        dark={VARIABLES[look.colour]: look.dark for look in every},
    )
    write_text(path, text)
    return path


def _rendered(study: Study, view: View, folder: Path) -> dict[str, Any]:
    """Return a study for the template, and write its tables and figures to files."""
    made = study.show(view)
    pictures = []
    for picture in made.pictures:
        if picture.facts == NOTHING:
            continue
        svg = saved(picture.figure)
        write_text(folder / "figures" / f"{study.name}-{picture.name}.svg", svg.decode())
        name = f"{study.name}-{picture.name}"
        pictures.append(
            {
                "name": picture.name,
                "title": picture.title,
                "svg": inline(svg, name, picture.title, VARIABLES),
                "caption": picture.caption,
                "facts": picture.facts,
            }
        )
    for block in made.blocks:
        write_text(folder / "tables" / f"{study.name}-{block.table.name}.csv", block.table.csv())
    return {
        "name": study.name,
        "title": study.title,
        "claims": study.claims,
        "remarks": made.remarks,
        "pictures": pictures,
        "blocks": made.blocks,
        "printed": [printed(name) for name in study.printed],
    }
