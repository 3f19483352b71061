"""The model file of a run folder, as `fedwatt export` asks for it."""

from pathlib import Path

from fedwatt.data import Vehicle
from fedwatt.data.features import feature_names, needs_climb
from fedwatt.data.store import read_vehicle
from fedwatt.deploy.state_folder import StateFolder
from fedwatt.edge.card import ModelCard
from fedwatt.edge.export import TrainedModel, export, personal, read_trained
from fedwatt.errors import DataError, SettingError
from fedwatt.runs.hills import learned_for, learns_hills, refreshed_field
from fedwatt.runs.level import LEVEL
from fedwatt.terrain.field import Field
from fedwatt.terrain.store import read_field


def export_run(
    run: Path,
    out: Path,
    *,
    method: str | None = None,
    seed: int | None = None,
    model: str = "best",
    form: str = "float32",
    vehicle: Path | None = None,
    terrain: Path | None = None,
    state: Path | None = None,
) -> tuple[TrainedModel, ModelCard]:
    """Write the model file `out`; the model that is in it, and its card.

    method, seed  the run's first where None
    model         "best" by validation, "last", or "personal": the vehicle's own
    form          weights as "float32", "float16" or "int8"
    vehicle       folder of the vehicle whose scaling and error bars go into the file, or None
    terrain       file of an elevation field; None: that of the run
    state         the vehicle's state folder, for a run of a real fleet; None otherwise
    """
    which = "best" if model == "personal" else model
    trained = read_trained(run, method=method, seed=seed, which=which)
    own = None if vehicle is None else _vehicle(vehicle)
    kept = None if state is None else StateFolder.of(state, run)
    if model == "personal":
        trained = _personal(trained, run, own, kept)
    if kept is not None and terrain is None and learns_hills(trained.config):
        terrain = kept.hills()
    field = None if own is None else field_for(trained, run, own.name, terrain)
    return trained, export(trained, out, vehicle=own, form=form, field=field)


def _vehicle(folder: Path) -> Vehicle:
    if not (folder / "vehicle.json").is_file():
        raise DataError(
            f"{folder} is not a vehicle's folder: it has no vehicle.json. Give one of the folders "
            "inside a fleet."
        )
    return read_vehicle(folder)


def _personal(
    trained: TrainedModel, run: Path, vehicle: Vehicle | None, kept: StateFolder | None
) -> TrainedModel:
    """The vehicle's own model and level model: from its state folder, or else from the run."""
    if kept is None:
        return personal(trained, run, vehicle)
    level = None
    if trained.level is not None:
        level = StateFolder.of(kept.state, run / LEVEL).personal(trained.method)
    return personal(trained, run, vehicle, kept.personal(trained.method), level)


def field_for(
    trained: TrainedModel, run: Path, vehicle: str, file: Path | None = None
) -> Field | None:
    """The elevation field for the vehicle's file: that of `file`, or the run's; None without hills.

    A field that the run learned is learned again, from the same training trips: the shared nodes
    and, on top, the vehicle's private ones, which no run folder holds. One that was refreshed in
    training is in the run. That of a real fleet is on the vehicle's own disk, and asked for.
    """
    config = trained.config
    hilly = needs_climb(feature_names(config.data.features))
    if not hilly or config.terrain.source == "measured":
        if file is not None:
            raise SettingError(
                "The run needs no elevation field: "
                + ("its climb is measured." if hilly else "climb is not among its features.")
                + " Leave --terrain out."
            )
        return None
    if file is not None or config.terrain.source != "learn":
        return read_field(file or Path(config.terrain.source))
    if config.terrain.refresh_every:
        return refreshed_field(config, run / "terrain" / f"{trained.method}.parquet", vehicle)
    if (run / "deployment.json").exists():
        raise DataError(
            f"The hills of {run} were learned on a real fleet, and those of vehicle '{vehicle}' "
            "are on its own disk. Give its --state folder here as well, or the file of a field "
            "with --terrain."
        )
    learned = learned_for(config)
    if learned is None or vehicle not in learned.own:
        raise DataError(
            f"Vehicle '{vehicle}' is not in the run's fleet '{config.fleet.data}', so the run has "
            "no field for it. Give one with --terrain ('fedwatt terrain learn' makes it)."
        )
    return learned.own[vehicle]
