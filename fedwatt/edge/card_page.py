"""A model's card as people read it: sections of names and values, and a page of them."""

from collections.abc import Sequence
from typing import Any

from fedwatt.edge.card import ModelCard
from fedwatt.errors import counted

Section = tuple[str, list[tuple[str, str]]]
UNKNOWN = "unknown: the run folder does not say"


def sections(card: ModelCard) -> list[Section]:
    """Everything that the card says, without the name of the vehicle and of its trips."""
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
        ("network", f"{card.backbone.upper()}, {card.form}"),
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


def render(card: Sequence[Section]) -> str:
    """Return the card as a page that needs nothing else."""
    from fedwatt.report.page import fill

    return fill("fedwatt.edge", "card.html.jinja", sections=card, light={}, dark={})
