"""`fedwatt predict`: a recorded or planned trip through a model file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedwatt.cli.console import console
from fedwatt.errors import SettingError


def predict(
    model: Annotated[Path, typer.Argument(help="Model file of 'fedwatt export --vehicle'.")],
    trip: Annotated[Path, typer.Argument(help="VEHICLE_FOLDER/TRIP of a fleet, or a CSV file.")],
    route: Annotated[
        bool, typer.Option("--route", help="The file has the points of a route, not seconds.")
    ] = False,
    charge: Annotated[float | None, typer.Option(help="State of charge at the start, %.")] = None,
    capacity: Annotated[float | None, typer.Option(help="Usable capacity, kWh.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw energy over time, SVG.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page of the trip.")] = None,
) -> None:
    """Energy of a trip with its error bars, and with a charge what is left on arrival."""
    from fedwatt.data.features import CLIMB
    from fedwatt.edge.figures import energy_figure
    from fedwatt.edge.page import render
    from fedwatt.edge.range import estimate_range
    from fedwatt.edge.reading import read_trip
    from fedwatt.edge.session import EnergyModel
    from fedwatt.edge.trips import charge_over_time, predict_trip
    from fedwatt.files import write_text
    from fedwatt.report.svg import to_svg
    from fedwatt.terrain.on_board import climb_from

    if (charge is None) != (capacity is None):
        raise SettingError("A range needs both --charge (in %) and --capacity (in kWh).")
    opened = EnergyModel(model)
    read, vehicle = read_trip(trip, route=route)
    found = predict_trip(opened, read, vehicle)
    reach = None
    if charge is not None and capacity is not None:
        reach = estimate_range(found, charge / 100, capacity * 1000)
    kind = "Route" if route else "Trip"
    table = Table(
        title=f"{kind} {read.name}" + (f" of {vehicle}" if vehicle else ""), show_header=False
    )
    table.add_column()
    table.add_column(justify="right")
    table.add_row("distance", f"{found.kilometres:.2f} km")
    table.add_row("duration", f"{read.seconds / 60:.1f} min")
    if opened.card.terrain:
        climb, descent = (found.trip.channels[name].sum() for name in CLIMB)
        table.add_row("climb, descent", f"{climb:.0f} m, {descent:.0f} m")
    if found.hills is not None:
        windows = f"{found.hills.sum():,} of {len(found.hills):,}"
        table.add_row("windows predicted with hills", windows)
    table.add_row("predicted energy", f"{found.total_wh:,.0f} Wh")
    if found.high_wh[-1] == found.high_wh[-1]:
        interval = f"{found.low_wh[-1]:,.0f} to {found.high_wh[-1]:,.0f} Wh"
        table.add_row(f"{found.level:.0%} interval", interval)
    if found.measured_total_wh is not None:
        measured = found.measured_total_wh
        table.add_row("measured energy", f"{measured:,.0f} Wh")
        if measured:
            error = (found.total_wh - measured) / abs(measured)
            table.add_row("error", f"{error:+.1%}")
    if reach is not None:
        table.add_row("charge on arrival", f"{100 * max(reach.arrival, 0):.1f} %")
        if found.high_wh[-1] == found.high_wh[-1]:
            ends = (f"{100 * max(end, 0):.1f}" for end in (reach.arrival_low, reach.arrival_high))
            table.add_row(f"{found.level:.0%} interval", f"{' to '.join(ends)} %")
        table.add_row("range of the charge", f"{reach.range_km:,.0f} km")
        table.add_row("left on arrival", f"{reach.remaining_km:,.0f} km")
    console.print(table)
    role = opened.card.role_of(read.name, vehicle)
    if role and found.measured_total_wh is not None:
        console.print(
            f"{read.name} is a {role} trip of {vehicle}: the model, its scaling or its error bars "
            "were made with it, so its error says little about new trips."
        )
    if reach is not None and not reach.reaches:
        console.print(f"The charge does not reach the end: {reach.short_wh:,.0f} Wh are missing.")
    level = opened.card.level
    if level and not level["borne_out"]:
        console.print("Hills are not borne out in this vehicle: the level model predicts it all.")
    elif opened.card.terrain and climb_from(read, opened.card.terrain["source"]) == "nothing":
        then = "the level model predicts it" if level else "the road counts as level"
        console.print(f"It has no positions, elevation or grade: {then}.")
    if vehicle and opened.card.vehicle != vehicle:
        console.print(f"The model has the scaling of {opened.card.vehicle}, not of {vehicle}.")
    if plot is not None:
        write_text(plot, to_svg(energy_figure(found)).decode())
        console.print(f"Figure: {plot}")
    if html is not None:
        known = charge_over_time(found)
        if charge is not None and capacity is not None:
            known = charge_over_time(found, charge / 100, capacity * 1000)
        page = render(found, opened.card, vehicle=vehicle, reach=reach, charge=known, kind=kind)
        write_text(html, page)
        console.print(f"Page: {html}")
