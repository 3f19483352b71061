"""The model file of a training that is at hand in Python."""

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from fedwatt.data import Fleet, Vehicle
from fedwatt.data.features import feature_names, needs_climb
from fedwatt.data.trip import FloatArray
from fedwatt.edge.about import about_fleet, about_run
from fedwatt.edge.card import ModelCard
from fedwatt.edge.export import TrainedModel, export, read_trained
from fedwatt.errors import SettingError, unknown
from fedwatt.journeys.prior import USUAL
from fedwatt.models import MODELS, Model
from fedwatt.runs.config import RunConfig
from fedwatt.runs.environment import describe_fleet
from fedwatt.runs.hills import vehicle_field
from fedwatt.runs.journeys import read_trip_prior
from fedwatt.runs.source import vehicle_maker


def export_trained(
    out: Path,
    config: RunConfig,
    method: str,
    seed: int,
    network: Model,
    weights: Tensor,
    *,
    personal: bool = False,
    vehicle: Vehicle | None = None,
    form: str = "float32",
    run: Path | None = None,
    fleet_ridge: FloatArray | None = None,
    fleet: Fleet | None = None,
) -> ModelCard:
    """Write the model file `out` of `weights` [D].

    `run` is the run folder, if it is in one; a run with hills must be. With a `fleet_ridge` the
    vehicle mixes the network with ridges. The card describes the `fleet`.
    """
    parts = {name: p.cpu().float().numpy() for name, p in network.layout.split(weights).items()}
    own = None if config.model.name in MODELS else network
    about: dict[str, object] = {}
    if run is not None:
        about = about_run(run, method, "personal" if personal else "kept", "")
    elif fleet is not None:
        about = {"trained_on": about_fleet(describe_fleet(fleet))}
    if not needs_climb(feature_names(config.data.features)):
        model = TrainedModel(
            parts,
            config,
            method,
            seed,
            personal,
            fleet_ridge=fleet_ridge,
            trip_prior=(read_trip_prior(run, method) if run else None) or USUAL,
            own=own,
            about=about,
        )
        return export(model, out, vehicle=vehicle, form=form)
    if run is None or personal:
        raise SettingError(
            "A model with hills is exported from its run folder, which has its level model: "
            "fedwatt export RUN --vehicle FOLDER."
        )
    model = read_trained(run, method=method, seed=seed)
    model = replace(model, about=about)
    field = None if vehicle is None else vehicle_field(config, run, method, vehicle.name)
    return export(model, out, vehicle=vehicle, form=form, field=field)


def vehicle_of(config: RunConfig, name: str) -> Vehicle:
    """A vehicle of the run's fleet by its name."""
    maker, _ = vehicle_maker(config.fleet)
    place = maker.place(name)
    if place is None:
        raise SettingError(unknown("vehicle", name, map(maker.name, range(maker.count))))
    return maker.vehicles([place])[0]
