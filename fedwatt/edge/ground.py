"""The elevation field that goes into a vehicle's model file."""

from pathlib import Path

from fedwatt.data.features import feature_names, needs_climb
from fedwatt.edge.export import TrainedModel
from fedwatt.errors import DataError, SettingError
from fedwatt.runs.hills import learned_for, refreshed_field
from fedwatt.terrain.field import Field
from fedwatt.terrain.store import read_field


def field_for(
    trained: TrainedModel, run: Path, vehicle: str, file: Path | None = None
) -> Field | None:
    """The field of `file`; without one, that of the run for the vehicle. None for no hills.

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
