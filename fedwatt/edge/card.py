"""The model card: a model file's description of itself, JSON in the file's metadata.

A model is worth nothing without knowing which numbers to feed it: the card names its features in
order with their units, the window, the time between samples, and where the model came from.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedwatt.errors import DataError, counted
from fedwatt.files import parse_json

KEY = "fedwatt"
ROUTES_KEY = "fedwatt.routes"
"""Names of the texts in a model file's metadata: the card, and the vehicle's model of routes."""
FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Everything a caller has to agree with before it asks for a prediction.

    features, units    columns of a window, in order
    window, interval_s samples in a window and seconds between them
    vehicle            whose scaling is in the graph; "" for a model of scaled features
    output             unit of a prediction, such as "Wh"; "scaled" for a model of scaled features
    target             what a window predicts (`fedwatt.windows.targets`); only energy adds up to
                       trips (`TRIP_TARGETS`)
    backbone           the network
    calibration        prediction intervals of the vehicle (`calibration.Calibration`), or empty
    elevation          where climb comes from: "source" is "field" (a map in the file: its nodes,
                       cell_m and hash), "elevation", or "auto", elevation first and then the map;
                       empty where no feature needs climb
    personalised       whether the model is the vehicle's own: fine-tuned, or given by its method
    trips              "training", "validation" -> names of the vehicle's trips that the model, its
                       scaling or its prediction intervals were made with
    without_elevation  prediction intervals of windows whose climb is unknown
                       (`calibration.Calibration`), or empty
    lag_s              seconds by which the vehicle's motion is delayed before features are made
    network_weight     what the network counts in a mixture with ridges; 1 where there is none
    about              facts for people, in coarse numbers (`edge.export_run`): "trained_on",
                       "errors", "privacy", "licence"
    trip_prior         how a trip's residuals usually hang together, in Wh, for predictions that
                       learn from the trip under way (`journeys.filter.TripPrior`); or empty
    memory_scale_wh    label scale for the memory of earlier trips (`journeys.memory`), Wh; 0: none
    balance            bounded correction of whole trips (`journeys.mixture.TripBalance`), with the
                       scaling of features and labels that it needs; or empty
    """

    features: tuple[str, ...]
    units: tuple[str, ...]
    window: int
    interval_s: float
    method: str
    run_hash: str
    library: str
    backbone: str
    vehicle: str = ""
    output: str = "scaled"
    calibration: dict[str, Any] = field(default_factory=dict)
    elevation: dict[str, Any] = field(default_factory=dict)
    personalised: bool = False
    trips: dict[str, list[str]] = field(default_factory=dict)
    without_elevation: dict[str, Any] = field(default_factory=dict)
    lag_s: float = 0.0
    network_weight: float = 1.0
    trip_prior: dict[str, float] = field(default_factory=dict)
    target: str = "energy"
    memory_scale_wh: float = 0.0
    balance: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the card as text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False, allow_nan=False)

    @staticmethod
    def from_json(text: str, where: str) -> "ModelCard":
        """Return the card in a file's metadata; `where` is named if it is none."""
        try:
            fields_read = parse_json(text)
            if fields_read.pop("format") != FORMAT:
                raise ValueError("another format")
            fields_read["features"], fields_read["units"] = (
                tuple(fields_read["features"]),
                tuple(fields_read["units"]),
            )
            return ModelCard(**fields_read)
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise DataError(
                f"{where} was written by another version of fedwatt ({problem}). "
                "Export it again with 'fedwatt export'."
            ) from problem

    def role_of(self, trip: str, vehicle: str) -> str:
        """Return the use of a trip when the model was made: "training", "validation", or ""."""
        if vehicle != self.vehicle:
            return ""
        return next((role for role, names in self.trips.items() if trip in names), "")


Section = tuple[str, list[tuple[str, str]]]
UNKNOWN = "unknown: the run folder does not say"


def sections(card: ModelCard) -> list[Section]:
    """Return the sections of the card, without the names of the vehicle and its trips."""
    return [
        ("The model", _model(card)),
        ("Trained on", _trained_on(card.about.get("trained_on", {}))),
        ("Errors on trips that training did not see", _errors(card)),
        ("Limits", [("", sentence) for sentence in limits(card)]),
        ("Privacy", _privacy(card)),
        ("Licence", [("", card.about.get("licence") or "none stated")]),
    ]


def _model(card: ModelCard) -> list[tuple[str, str]]:
    whose = "the telemetry of one vehicle" if card.vehicle else "scaled features of any vehicle"
    personalised = ", for which the model was fine-tuned" if card.personalised else ""
    seconds = card.window * card.interval_s
    return [
        ("network", card.backbone.upper()),
        ("method", card.method),
        ("takes", whose + personalised),
        ("predicts", f"{card.target}, in {card.output}, of the last {seconds:g} s"),
        ("features", ", ".join(card.features)),
        ("made by", f"fedwatt {card.library}, run {card.run_hash[:12]}"),
    ]


def _trained_on(fleet: dict[str, Any]) -> list[tuple[str, str]]:
    if not fleet:
        return [("", UNKNOWN)]
    held = f", and {fleet['held_out']} that only evaluated" if fleet.get("held_out") else ""
    trained = fleet.get("vehicles", 0) - fleet.get("held_out", 0)
    rows = [("vehicles", f"{trained}{held} ({', '.join(fleet.get('kinds', ())) or 'of any kind'})")]
    driven = fleet.get("coverage", {})
    if "kilometres" in driven:
        driving = f"{driven['kilometres']:,.0f} km in {driven['hours']:,g} h"
        rows.append(("driven", f"{driving}, the trips for validation and test included"))
    if "ambient_c" in driven:
        low, high = driven["ambient_c"]
        rows.append(("outside temperature", f"{low} to {high} °C in nine of ten hours"))
    if "climb_m_per_km" in driven:
        rows.append(("climb", f"about {driven['climb_m_per_km']:g} m of climb per km"))
    if not driven:
        rows.append(("driven", "unknown: vehicles do not report it"))
    labels = fleet.get("labels", {}).items()
    present = [f"{kind} in {counted(n, 'vehicle')}" for kind, n in labels if n]
    rows.append(("energy", ", ".join(present) or UNKNOWN))
    return rows


def _errors(card: ModelCard) -> list[tuple[str, str]]:
    errors = card.about.get("errors", {})
    if not errors:
        rows = [("", UNKNOWN)]
    else:
        unit = errors["unit"]
        interval = errors["interval"]
        bars = f" (95 % interval {interval[0]:.1f} to {interval[1]:.1f})" if interval else ""
        overall = f"{errors['rmse']:.1f} {unit}{bars}, mean of {errors['vehicles']} vehicles"
        rows = [("RMSE of a window", overall)]
        for name, regime in errors["regimes"].items():
            rows.append((name, f"{regime['rmse']:.1f} {unit} in {regime['windows']:,} windows"))
    if card.calibration:
        intervals = card.calibration
        calibrated_on = f"{intervals['trips']} {intervals['source']}"
        rows.append(("prediction interval", f"{intervals['level']:.0%}, from {calibrated_on}"))
    return rows


def limits(card: ModelCard) -> list[str]:
    """Return the limits of the model that its card shows."""
    fleet = card.about.get("trained_on", {})
    sentences = []
    if fleet.get("labels", {}).get("simulated"):
        sentences.append("Its labels are simulated: it has not been tested on real vehicles.")
    if "ambient_c" in fleet.get("coverage", {}):
        low, high = fleet["coverage"]["ambient_c"]
        sentences.append(f"It extrapolates below {low} °C and above {high} °C.")
    seen = card.about.get("errors", {}).get("regimes", {})
    for name, regime in seen.items():
        if regime["windows"] < 100:
            place = name.partition(": ")[2]
            sentences.append(f"It was evaluated on only {regime['windows']} windows {place}.")
    if card.vehicle:
        sentences.append("It fits only the vehicle that it was exported for.")
    if not card.calibration:
        sentences.append("It has no prediction intervals.")
    if card.elevation:
        sentences.append("Climb is known only on its map or where the vehicle measures it.")
    if card.elevation and card.calibration and not card.without_elevation:
        sentences.append("Where climb is unknown, its prediction intervals are too narrow.")
    return sentences


def _privacy(card: ModelCard) -> list[tuple[str, str]]:
    spent = card.about.get("privacy")
    if spent is None:
        rows = [("", UNKNOWN)]
    elif spent["epsilon"] is None:
        rows = [("", "no noise was added, so no ε bounds what the model reveals")]
    else:
        delta = f", δ = {spent['delta']:.2g}" if spent["delta"] else ""
        rows = [("spent by training", f"ε = {spent['epsilon']:.3g}{delta} for each vehicle")]
        server = spent["epsilon_server"]
        against = f"ε = {server:.3g}" if server is not None else "no bound"
        rows.append(("against the server", against))
    if "nodes" in card.elevation:
        rows.append(("elevation map", "shows where the vehicle drives: keep it in the vehicle"))
    if card.vehicle:
        rows.append(("names", "the file holds the names of its vehicle and of its training trips"))
    return rows


def render(card: Sequence[Section], title: str) -> str:
    """Return the card as a page that needs nothing else."""
    from fedwatt.report.page import fill

    return fill("fedwatt.edge", "card.html.jinja", title=title, sections=card, light={}, dark={})
