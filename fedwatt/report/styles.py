"""Driving styles in a report, where `fedwatt styles` has looked for them."""

from fedwatt.report.load import Run
from fedwatt.report.style import name_of
from fedwatt.report.table import Column, Table
from fedwatt.styles import Styles


def styles_table(found: Styles) -> Table:
    """Each style by its number of vehicles and what tells it apart."""
    names = [f"style {number + 1}" for number in range(found.clusters)]
    if found.clusters == 1:
        names = ["all vehicles"]
    return Table(
        "styles",
        "Driving styles",
        (Column("Style"), Column("Vehicles"), *(Column(what, digits=2) for what in found.profile)),
        tuple(
            (name, found.sizes[place], *(values[place] for values in found.profile.values()))
            for place, name in enumerate(names)
        ),
        f"{found.sentence} Vehicles are compared by the hidden layer of the models of "
        f"{name_of(found.method)} (seeds {', '.join(map(str, found.seeds))}): features of speed "
        "alone, on the fleet's scale, less what is usual at the same mean speed, along directions "
        "in which vehicles differ more than their own trips do. Features are those that differ "
        "most between styles, as means over a style's vehicles.",
    )


def run_styles_table(run: Run) -> Table:
    """The styles of a report's first run; without rows where nobody has looked for any."""
    found = run.origins[0].styles
    if found is None:
        return Table("styles", "Driving styles", (), (), "")
    return styles_table(found)
