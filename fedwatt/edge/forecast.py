"""One trip or route through one model file: all that `fedwatt predict` shows and draws."""

from dataclasses import dataclass
from pathlib import Path

from fedwatt.edge.card import ModelCard
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.pretrained import opened
from fedwatt.edge.reading import read_trip
from fedwatt.edge.route_forecast import spread_text
from fedwatt.edge.trips import (
    RangeEstimate,
    TripPrediction,
    charge_over_time,
    estimate_range,
    predict_trip,
)
from fedwatt.elevation.climb import climb_from
from fedwatt.errors import SettingError
from fedwatt.telemetry.trip import FloatArray, Trip
from fedwatt.windows.features import CLIMB

Rows = list[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Forecast:
    """A trip, the model that predicts it and the prediction.

    trip        as it was read, before the model adds its hills
    kind        "Trip" for one with a row a second, "Route" for planned points
    vehicle     name of the vehicle whose folder the trip is in; "" for a file
    prediction  energy by second
    reach       state of charge on arrival and range; None without one at departure
    soc         state of charge, 0 to 1, [seconds]; None where it is not known
    """

    trip: Trip
    kind: str
    vehicle: str
    card: ModelCard
    prediction: TripPrediction
    reach: RangeEstimate | None
    soc: FloatArray | None

    @property
    def title(self) -> str:
        """Kind and name of the trip, and its vehicle where that is known."""
        return f"{self.kind} {self.trip.name}" + (f" of {self.vehicle}" if self.vehicle else "")

    def answer(self) -> str:
        """Return the prediction in one sentence: state of charge on arrival, or else the energy."""
        prediction = self.prediction
        reach = self.reach
        if reach is None:
            ends = prediction.interval_wh
            spread = f" ({spread_text(*ends, 'Wh')})" if ends else ""
            verb = "takes" if prediction.measured_wh is None else "is predicted to take"
            return f"The trip {verb} {prediction.total_wh:,.0f} Wh{spread}"
        if not reach.reaches:
            return f"The battery is empty after {reach.range_km:,.1f} km"
        return f"You arrive with {100 * reach.arrival:.0f} %" + (
            "" if prediction.interval_wh is None else f" ({self._arrival_spread(reach)})"
        )

    def _arrival_spread(self, reach: RangeEstimate, digits: int = 0) -> str:
        low, high = (100 * max(end, 0) for end in (reach.arrival_low, reach.arrival_high))
        return spread_text(low, high, "%", digits)

    def rows(self) -> Rows:
        """Return the numbers of the trip: (name, value with its unit)."""
        return [*self._drive_rows(), *self._energy_rows(), *self._soc_rows()]

    def _drive_rows(self) -> Rows:
        prediction = self.prediction
        rows = [
            ("distance", f"{prediction.kilometres:.2f} km"),
            ("duration", f"{self.trip.seconds / 60:.1f} min"),
        ]
        if self.card.elevation:
            climb, descent = (prediction.trip.channels[name].sum() for name in CLIMB)
            rows.append(("climb, descent", f"{climb:.0f} m, {descent:.0f} m"))
        climb_known = prediction.climb_known
        if climb_known is not None:
            windows = f"{climb_known.sum():,} of {len(climb_known):,}"
            rows.append(("windows with known climb", windows))
        return rows

    def _energy_rows(self) -> Rows:
        prediction = self.prediction
        rows = [("predicted energy", f"{prediction.total_wh:,.0f} Wh")]
        if prediction.interval_wh is not None:
            low, high = prediction.interval_wh
            rows.append((_interval_name(prediction), spread_text(low, high, "Wh")))
        if prediction.measured_total_wh is not None:
            rows.append(("measured energy", f"{prediction.measured_total_wh:,.0f} Wh"))
        if prediction.relative_error is not None:
            rows.append(("error", f"{prediction.relative_error:+.1%}"))
        return rows

    def _soc_rows(self) -> Rows:
        reach = self.reach
        prediction = self.prediction
        if reach is None:
            return []
        rows = [("SoC on arrival", f"{100 * max(reach.arrival, 0):.1f} %")]
        if prediction.interval_wh is not None:
            rows.append((_interval_name(prediction), self._arrival_spread(reach, 1)))
        rows.append(("range at departure", f"{reach.range_km:,.0f} km"))
        rows.append(("range on arrival", f"{reach.remaining_km:,.0f} km"))
        return rows

    def remarks(self) -> list[str]:
        """Return remarks that a reader of the numbers needs, one sentence each."""
        card = self.card
        made = []
        role = card.role_of(self.trip.name, self.vehicle)
        if role and self.prediction.measured_wh is not None:
            made.append(
                f"{self.trip.name} is a {role} trip of {self.vehicle}: the model, its scaling or "
                "its prediction intervals were made with it, so its error is no test."
            )
        if self.reach is not None and not self.reach.reaches:
            missing = f"{self.reach.short_wh:,.0f} Wh are missing"
            made.append(f"The battery does not reach the end: {missing}.")
        if card.elevation and climb_from(self.trip, card.elevation["source"]) == "nothing":
            made.append("It has no positions, elevation or grade: its climb is unknown.")
        if self.vehicle and card.vehicle != self.vehicle:
            made.append(f"The model has the scaling of {card.vehicle}, not of {self.vehicle}.")
        return made


def _interval_name(prediction: TripPrediction) -> str:
    return f"{100 * prediction.level:.0f} % interval"


def forecast(
    model: str | Path,
    trip: Path,
    *,
    route: bool = False,
    soc: float | None = None,
    capacity_wh: float | None = None,
) -> Forecast:
    """Return the trip at `trip` (`reading.read_trip`) as a model file or pre-trained one has it.

    A state of charge at departure, 0 to 1, gives that on arrival and a range. It needs a usable
    capacity: the model's, unless one is given.
    """
    if soc is None and capacity_wh is not None:
        raise SettingError("A capacity needs a state of charge: give --soc, such as 62%.")
    energy_model = opened(str(model))
    if soc is not None and capacity_wh is None:
        capacity_wh = _stated_capacity_wh(energy_model)
    read, vehicle = read_trip(trip, route=route)
    prediction = predict_trip(energy_model, read, vehicle)
    reach = None
    if soc is not None and capacity_wh is not None:
        reach = estimate_range(prediction, soc, capacity_wh)
    along = charge_over_time(prediction, soc, capacity_wh)
    kind = "Route" if route else "Trip"
    return Forecast(read, kind, vehicle, energy_model.card, prediction, reach, along)


def _stated_capacity_wh(model: EnergyModel) -> float:
    """Return the usable capacity that the file's route model states for its vehicle."""
    routes = model.routes()
    if routes is None or not routes.capacity_wh:
        raise SettingError(
            f"A state of charge needs a capacity, and {model.path} does not know its "
            "vehicle's: give --capacity in kWh."
        )
    return routes.capacity_wh
