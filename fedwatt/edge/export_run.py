"""The model file of a run folder, as `fedwatt export` asks for it, or of a training in Python."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedwatt.edge.card import ModelCard
from fedwatt.edge.export import TrainedModel, export, read_trained
from fedwatt.edge.pretrained import routes_of_member
from fedwatt.errors import DataError, RunError, SettingError, unknown
from fedwatt.journeys.intervals import USUAL
from fedwatt.journeys.ridge import FleetRidge
from fedwatt.models import MODELS, Model
from fedwatt.report.load import RunTables, load_run, where
from fedwatt.report.statistics import estimate, final_model, vehicle_rmse
from fedwatt.runs.config import RunConfig
from fedwatt.runs.journeys import read_intervals, read_trip_prior
from fedwatt.runs.model_file import read_personalised, read_personalised_file
from fedwatt.runs.provenance import describe_fleet
from fedwatt.runs.source import learns_elevation, vehicle_maker, vehicle_map
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import read_vehicle
from fedwatt.windows import Fleet
from fedwatt.windows.features import feature_names, needs_climb

if TYPE_CHECKING:
    from fedwatt.deploy.vehicle.client_state import StateFolder


def export_run(
    run: Path,
    out: Path,
    *,
    method: str | None = None,
    seed: int | None = None,
    model: str = "final",
    vehicle: Path | None = None,
    elevation: Path | None = None,
    state: Path | None = None,
    routes: bool = False,
    licence: str = "",
) -> tuple[TrainedModel, ModelCard]:
    """Write the model file `out`; the model that is in it, and its card.

    method, seed  the run's first where None
    model         "final", what vehicles use; "best" by validation; "last"; or "personalised", its
                  own
    vehicle       folder of the vehicle whose scaling and error bars go into the file, or None
    elevation       file of an elevation field; None: that of the run
    state         the vehicle's state folder, for a run of a real fleet; None otherwise
    routes        whether the file also predicts trips from their routes alone
    licence       of the model, for its card
    """
    which = "final" if model == "personalised" else model
    trained = read_trained(run, method=method, seed=seed, which=which)
    trained = replace(trained, about=about_run(run, trained.method, model, licence))
    vehicle_data = None if vehicle is None else _vehicle(vehicle)
    state_folder = None if state is None else _state_folder(state, run)
    if model == "personalised":
        trained = personalised(trained, run, vehicle_data, state_folder)
    if state_folder is not None and elevation is None and learns_elevation(trained.config):
        elevation = state_folder.elevation_map()
    if vehicle_data is None:
        if routes:
            raise SettingError("Routes are a vehicle's: give its folder with --vehicle.")
        return trained, export(trained, out)
    field = vehicle_map(trained.config, run, vehicle_data.name, elevation)
    planned = routes_of_member(run, trained.config, vehicle_data) if routes else None
    return trained, export(trained, out, vehicle=vehicle_data, field=field, routes=planned)


def _state_folder(state: Path, run: Path) -> "StateFolder":
    from fedwatt.deploy.vehicle.client_state import StateFolder

    return StateFolder.of(state, run)


def _vehicle(folder: Path) -> Vehicle:
    if not (folder / "vehicle.json").is_file():
        raise DataError(
            f"{folder} is not a vehicle's folder: it has no vehicle.json. Give one of the folders "
            "inside a fleet."
        )
    return read_vehicle(folder)


def personalised(
    trained: TrainedModel, run: Path, vehicle: Vehicle | None, state: "StateFolder | None" = None
) -> TrainedModel:
    """Return the model that a vehicle of the run made its own, in place of the global one.

    It is in the run folder; that of a deployed fleet is in the `state` folder of the vehicle.
    """
    if vehicle is None:
        raise SettingError("A personalised model is a vehicle's: give its folder with --vehicle.")
    if state is not None:
        weights = read_personalised_file(state.personalised(trained.method), vehicle.name)
    elif (Path(run) / "deployment.json").exists():
        raise RunError(
            f"The personalised models of {run} were made on a deployed fleet, and that of vehicle "
            f"'{vehicle.name}' is on its own disk. Give its --state folder here as well."
        )
    else:
        weights = read_personalised(Path(run), trained.method, trained.seed, vehicle.name)
    return replace(trained, weights=weights, personalised=True)


def export_trained(
    out: Path,
    config: RunConfig,
    method: str,
    seed: int,
    network: Model,
    weights: Tensor,
    *,
    personalised: bool = False,
    vehicle: Vehicle | None = None,
    run: Path | None = None,
    fleet_ridge: FleetRidge | None = None,
    fleet: Fleet | None = None,
) -> ModelCard:
    """Write the model file `out` of `weights` [D].

    `run` is the run folder, if it is in one; for a `vehicle` of a run with elevation it must be.
    With a `fleet_ridge` the vehicle mixes the network with ridges. The card describes the `fleet`.
    """
    parts = {name: p.cpu().float().numpy() for name, p in network.layout.split(weights).items()}
    custom_model = None if config.model.name in MODELS else network
    description: dict[str, object] = {}
    if run is not None:
        description = about_run(run, method, "personalised" if personalised else "final", "")
    elif fleet is not None:
        description = {"trained_on": about_fleet(describe_fleet(fleet))}
    field = None
    if vehicle is not None and needs_climb(feature_names(config.data.features)):
        if run is None:
            raise SettingError(
                "The elevation map of a vehicle is learned as its run folder says: save the run, "
                "or use 'fedwatt export RUN --vehicle FOLDER'."
            )
        field = vehicle_map(config, run, vehicle.name)
    model = TrainedModel(
        parts,
        config,
        method,
        seed,
        personalised,
        fleet_ridge=fleet_ridge,
        trip_prior=(read_trip_prior(run, method) if run else None) or USUAL,
        intervals=read_intervals(run, method) if run else None,
        own=custom_model,
        about=description,
    )
    return export(model, out, vehicle=vehicle, field=field)


def vehicle_of(config: RunConfig, name: str) -> Vehicle:
    """Return a vehicle of the run's fleet by its name."""
    maker = vehicle_maker(config.fleet)
    place = maker.place(name)
    if place is None:
        raise SettingError(unknown("vehicle", name, map(maker.name, range(maker.count))))
    return maker.vehicles([place])[0]


FLEET = ("vehicles", "windows", "labels", "kinds", "coverage")
"""Of what environment.json says of a fleet, that which names nobody."""


def about_run(run: Path, method: str, model: str, licence: str) -> dict[str, Any]:
    """Return the part of a card that a run folder knows; `model` as in `fedwatt export`."""
    try:
        loaded = load_run(run)
    except RunError:  # in the vehicle, where only the model was copied
        return {"licence": licence}
    environment = loaded.origins[0].environment
    name = final_model(loaded, method) if model == "final" else model
    spent = environment.get("privacy", {}).get(method, {})
    return {
        "trained_on": about_fleet(environment.get("fleet", {})),
        "errors": _errors(loaded, method, name),
        "privacy": {
            "epsilon": _largest(where(loaded.rounds, method=method).get("epsilon")),
            "delta": spent.get("delta"),
            "epsilon_server": spent.get("epsilon_server"),
        },
        "licence": licence,
    }


def about_fleet(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a fleet without names and sources."""
    held_out = {"held_out": len(described.get("held_out", ()))}
    return {name: described[name] for name in FLEET if name in described} | held_out


def _errors(run: RunTables, method: str, model: str) -> dict[str, Any]:
    """Return window RMSE: mean over vehicles with its 95 % interval, and by driving regime."""
    error = estimate(list(vehicle_rmse(run, method, model=model).values()))
    if not error.seeds:
        return {}
    rows = where(run.vehicles, method=method, model=model, held_out=False)
    regimes = {}
    for stratum in dict.fromkeys(rows["stratum"]):
        stratum_rows = where(rows, stratum=stratum)
        windows = stratum_rows["windows"].astype(float)
        if stratum != "all" and windows.sum():
            squared = sum(n * e**2 for n, e in zip(windows, stratum_rows["rmse"], strict=True) if n)
            rmse = round(math.sqrt(squared / windows.sum()), 1)
            regimes[str(stratum)] = {"windows": int(windows.sum()), "rmse": rmse}
    has_interval = error.seeds > 2 and not error.copies
    interval = [round(max(error.low, 0.0), 2), round(error.high, 2)] if has_interval else None
    return {
        "unit": run.unit,
        "rmse": round(error.mean, 2),
        "interval": interval,
        "vehicles": error.seeds,
        "regimes": regimes,
    }


def _largest(values: Any) -> float | None:
    """Return the largest number; None without any, and for a budget without an end."""
    finite = [float(v) for v in ([] if values is None else values) if math.isfinite(v)]
    return max(finite) if finite else None
