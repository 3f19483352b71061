"""The result of training: one object that predicts, fine-tunes, reports, exports and is saved.

    trained = Run.on(fleet, "./net.py:Net").train("./sam.py:sam")
    trained.predict(fleet)              # Wh of every vehicle's test windows
    trained.save("runs/sam")            # an ordinary run folder
    fedwatt.load("runs/sam").export("model.onnx")

It is the same object whether it was trained here or by `fedwatt run`, with methods, models and
targets of fedwatt or of the user. What needs more than torch and numpy is loaded when it is needed.
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast, overload

import torch
from torch import Tensor

from fedwatt import plugins
from fedwatt.errors import RunError, SettingError, unknown
from fedwatt.evaluation import Baselines, Personalisation, PersonalisedModel, personalise
from fedwatt.federation import Federation, History, State
from fedwatt.federation.federation import Network
from fedwatt.federation.selection import GLOBAL_MODELS
from fedwatt.journeys.ridge import FleetRidge, fleet_ridge
from fedwatt.methods import Method
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.folder import CheckpointOrigin, load_checkpoint, run_hash, save_checkpoint
from fedwatt.runs.journeys import VehicleModel
from fedwatt.runs.model_file import flat, personalised_file, read_model_config, read_personalised
from fedwatt.runs.run import Run, RunBackend
from fedwatt.runs.simulation import Simulation
from fedwatt.tables import blank, declared
from fedwatt.telemetry.trip import FloatArray, Trip, Vehicle
from fedwatt.windows.client import Client, Fleet, build_client
from fedwatt.windows.features import feature_names, needs_climb

if TYPE_CHECKING:
    import polars as pl

    from fedwatt.edge.card import ModelCard


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of one method: the tables of its `history`, its last `state`, and its models.

    Where a method takes a `seed`, the default is the first one. `model` is "final" (as a rule
    the mean of the best-validated and the last one), "best" by validation, "last", or
    "personalised", the default where vehicles have personalised models.
    """

    history: History
    state: State
    run: Run = field(repr=False)
    choice: MethodChoice
    folder: Path | None = None
    """The run folder of the result; None: it is in memory."""
    personalised: Mapping[tuple[int, str], Tensor] = field(default_factory=dict, repr=False)
    """(Seed, vehicle) → the personalised model [D]."""

    def __repr__(self) -> str:
        """Return a short description without arrays."""
        where = f", {str(self.folder)!r}" if self.folder else ""
        return (
            f"Trained({self.label!r}, {self.state.round} rounds, seeds {self.config.seeds}{where})"
        )

    @cached_property
    def federation(self) -> Federation:
        """The fleet, the model and the terms; those of a run folder are opened when needed."""
        return cast(Federation, self.run.backend.loop(self.run, self.choice))

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self.run.config

    @property
    def method(self) -> Method:
        """The method that was trained."""
        return self.choice.method

    @property
    def label(self) -> str:
        """Name of the method in tables."""
        return self.history.method

    @property
    def fleet(self) -> Fleet:
        """The fleet that was trained on."""
        return self.federation.fleet

    @overload
    def predict(
        self, what: Trip, *, vehicle: str | None = ..., seed: int | None = ..., model: str = ...
    ) -> FloatArray: ...
    @overload
    def predict(
        self,
        what: Fleet | Vehicle,
        *,
        vehicle: str | None = ...,
        seed: int | None = ...,
        model: str = ...,
    ) -> dict[str, FloatArray]: ...
    def predict(
        self,
        what: Trip | Fleet | Vehicle,
        *,
        vehicle: str | None = None,
        seed: int | None = None,
        model: str = "",
    ) -> FloatArray | dict[str, FloatArray]:
        """Return the model's predictions in the target's unit (Wh for energy).

        trip      [seconds - window + 1], for the window that ends at each second from the first
                  full one on; `vehicle` names the one that drove it, whose scaling it needs
        vehicle   trip → the same, for each of its trips that holds a window
        fleet     vehicle → [windows], for its test windows; `Client.labels` has what was measured

        Trips come as they were recorded: with `data.align` they are delayed by the vehicle's time
        offset. With `model.mixture` the network is mixed with the vehicle's ridges.
        """
        if isinstance(what, Fleet):
            trained = self.fleet
            if (what.window, what.features) != (trained.window, trained.features):
                raise SettingError(
                    f"The model reads {trained.window} s of {', '.join(trained.features)}; the "
                    f"fleet '{what.source}' has {what.window} s of {', '.join(what.features)}."
                )
            return {c.name: self._of(c, seed, model).of_split("test") for c in what.clients}
        if isinstance(what, Vehicle):
            is_member = what.name in self.fleet.names
            client = (
                self._client(what.name) if is_member else build_client(what, self.fleet.settings)
            )
            # One that says its time_offset has been delayed by it already.
            lag_s = 0.0 if "lag_s" in what.facts else client.lag_s
            usable = [trip for trip in what.trips if trip.seconds >= self.fleet.window]
            return self._of_trips(usable, client, lag_s, seed, model)
        if vehicle is None:
            raise SettingError(
                "A trip is scaled as its vehicle's trips are: say whose it is, as in "
                "predict(trip, vehicle='car-001')."
            )
        client = self._client(vehicle)
        return self._of_trips([what], client, client.lag_s, seed, model)[what.name]

    def frame(self, table: str = "rounds") -> "pl.DataFrame":
        """Return a table of the training as a polars DataFrame: "rounds", "clients" or "timing"."""
        import polars as pl

        names = ("rounds", "clients", "timing")
        if table not in names:
            raise SettingError(unknown("table", table, names))
        unknown_row = blank(declared(table).columns)
        rows = [unknown_row | row for row in getattr(self.history, table)]
        return pl.DataFrame(rows, infer_schema_length=None)

    def personalise(self, settings: Personalisation | None = None) -> "Trained":
        """Return a copy in which each vehicle has fine-tuned the final model.

        Where the method personalises models, vehicles fine-tune those.
        """
        settings = replace(settings or Personalisation(), enabled=True)
        seeds = self.federation.seeds
        names = self.fleet.names
        personalised: dict[tuple[int, str], Tensor] = {}

        def keep(result: PersonalisedModel) -> None:
            personalised[seeds[result.run], names[result.vehicle]] = result.weights.cpu()

        weights = self.state.final_weights
        initial = None
        if self.method.personalised:
            initial = self.federation.personalised_models(self.method, self.state)
        personalise(self.federation, weights, settings, keep=keep, initial=initial)
        config = replace(self.config, personalisation=settings)
        run = replace(self.run, config=config, out=None)
        return replace(self, run=run, personalised=personalised, folder=None)

    def save(self, folder: str | Path, *, baselines: bool = True) -> Path:
        """Write an ordinary run folder: to report on, resume, compare, export and load.

        `baselines`, what vehicles would have alone, are worked out for it as for `fedwatt run`.
        """
        path = Path(folder)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunError(f"{path} exists and is not empty. Choose a new folder.")
        self._write(path, baselines=baselines)
        return path

    def report(
        self, *compared: "Trained", out: str | Path | None = None, baselines: bool = True
    ) -> Path:
        """Write the report, alone or with other results `compared`; return the path of its page.

        It goes into the run folder or `out`. Without a run folder, `baselines` are trained first.
        """
        from fedwatt.report.write import write_report

        if out is None and (compared or self.folder is None):
            raise SettingError("Say which folder the report goes to: report(out='reports/first').")
        with ExitStack() as stack:
            folders = []
            for trained in (self, *compared):
                folder = trained.folder
                if folder is None:
                    scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="fedwatt-"))
                    folder = Path(scratch) / trained.label
                    # A report has the baselines of its first run.
                    trained._write(folder, baselines=baselines and trained is self)
                folders.append(folder)
            return write_report(*folders, out=out)

    def export(
        self,
        out: str | Path,
        *,
        vehicle: "Vehicle | str | None" = None,
        seed: int | None = None,
        model: str = "",
    ) -> "ModelCard":
        """Write the model as an ONNX file, and return its card.

        With a `vehicle`, or its name in the fleet, its scaling and prediction intervals are in the
        file, which then takes telemetry; without one it takes scaled features.
        """
        from fedwatt.edge.export_run import export_trained, vehicle_of

        if isinstance(vehicle, str):
            vehicle = vehicle_of(self.config, vehicle)
        which = self._which(model)
        number = self._seed(seed)
        if which == "personalised" and vehicle is None:
            raise SettingError("A personalised model is a vehicle's: say whose, with vehicle=.")
        return export_trained(
            Path(out),
            self.config,
            self.label,
            number,
            self.federation.model,
            self.weights(seed=number, model=which, vehicle=vehicle.name if vehicle else ""),
            personalised=which == "personalised",
            vehicle=vehicle,
            run=self.folder,
            fleet_ridge=self._fleet_ridge,
            fleet=self.fleet,
        )

    def weights(self, *, seed: int | None = None, model: str = "", vehicle: str = "") -> Tensor:
        """Return a model [D]; the personalised one is a `vehicle`'s."""
        which = self._which(model)
        number = self._seed(seed)
        if which == "personalised":
            return self._personalised_weights(number, vehicle)
        run = self.federation.seeds.index(number)
        layout = self.federation.model.layout
        return self.state.models[which][run, : layout.size]

    def _personalised_weights(self, seed: int, vehicle: str) -> Tensor:
        if (seed, vehicle) in self.personalised:
            return self.personalised[seed, vehicle]
        if (
            self.folder is None
            and self.method.personalised
            and not self.config.personalisation.enabled
        ):
            place = self.federation.seeds.index(seed)
            number = self.fleet.names.index(vehicle)
            return self.federation.personalised_models(self.method, self.state)(place, [number])[0]
        if self.folder is None:
            raise SettingError(f"'{vehicle}' has no personalised model. personalise() makes one.")
        parts = read_personalised(self.folder, self.label, seed, vehicle)
        file = personalised_file(self.folder, self.label, seed, vehicle)
        return torch.from_numpy(flat(parts, self.federation.model.layout, file))

    def _which(self, model: str) -> str:
        by_choice = bool(self.personalised) or self.config.personalisation.enabled
        which = model or ("personalised" if by_choice or self.method.personalised else "final")
        choices = (*GLOBAL_MODELS, "personalised")
        if which not in choices:
            raise SettingError(unknown("model of a run", which, choices))
        return which

    def _seed(self, seed: int | None) -> int:
        seeds = self.config.seeds
        if seed is not None and seed not in seeds:
            raise SettingError(f"There is no seed {seed}; there are {', '.join(map(str, seeds))}.")
        return seeds[0] if seed is None else seed

    def _client(self, name: str) -> Client:
        if name not in self.fleet.names:
            raise SettingError(unknown("vehicle", name, self.fleet.names))
        return self.fleet.clients[self.fleet.names.index(name)]

    def _of_trips(
        self, trips: Sequence[Trip], client: Client, lag_s: float, seed: int | None, model: str
    ) -> dict[str, FloatArray]:
        features = self.fleet.settings.features
        if needs_climb(feature_names(features)):
            raise SettingError(
                "A model with elevation reads climb from its vehicle's own map: export it "
                "for the vehicle, and predict with the file."
            )
        vehicle_model = self._of(client, seed, model)
        return {trip.name: vehicle_model.of_trip(trip, features, lag_s=lag_s) for trip in trips}

    def _of(self, client: Client, seed: int | None, model: str) -> VehicleModel:
        """Return a vehicle's predictor; `model.mixture` mixes it with ridges, as in the run."""
        if self._which(model) == "personalised" and client.name not in self.fleet.names:
            model = "final"  # a vehicle that was not there has none of its own
        weights = self.weights(seed=seed, model=model, vehicle=client.name).cpu()
        vehicle_model = VehicleModel(self.federation.model, weights, client)
        return (
            vehicle_model if self._fleet_ridge is None else vehicle_model.mixed(self._fleet_ridge)
        )

    @cached_property
    def _fleet_ridge(self) -> FleetRidge | None:
        """The fleet's ridge; None where the run mixes nothing."""
        return fleet_ridge(self.fleet.clients) if self.config.model.mixture else None

    def _write(self, folder: Path, *, baselines: bool) -> None:
        """Write the checkpoint of the finished training, and from it the run folder."""
        config = replace(
            self.config, methods=(self.choice,), baselines=Baselines(enabled=baselines)
        )
        backend = Simulation(self.federation, self.fleet, self.federation.model_given)
        run = Run(config, backend, out=folder, resume=True)
        state = self.state
        if not self.method.personalised:
            # Client state is of use to the next round alone, and there is none.
            state = replace(state, client_state={}, events={})
        origin = CheckpointOrigin(run_hash(config), self.fleet.data_hash())
        save_checkpoint(run.checkpoints(self.choice), state, self.history, origin)
        run.carry_out()


def load(
    folder: str | Path,
    *,
    method: str | None = None,
    fleet: Fleet | None = None,
    model: Network | None = None,
    trust: Sequence[str] = (),
) -> Trained:
    """Return the trained `method` of a run folder, by its label; by default its first one.

    `fleet` and `model` are those of a run that was given them as objects. `trust` names code that
    the run may load.
    """
    plugins.trust(*trust)
    return read_trained(Path(folder), Simulation(None, fleet, model), method)


def read_trained(folder: Path, backend: RunBackend, method: str | None = None) -> Trained:
    """Return a method of a run folder whose vehicles are those of a backend."""
    config = read_model_config(folder)
    labels = [choice.label for choice in config.methods]
    if method is not None and method not in labels:
        raise SettingError(unknown("method of this run", method, labels))
    choice = config.methods[0 if method is None else labels.index(method)]
    run = Run(config, backend, out=folder)
    origin = CheckpointOrigin(run_hash(config), None)
    checkpoint = load_checkpoint(run.checkpoints(choice), choice.label, origin)
    if checkpoint is None:
        raise RunError(
            f"{folder} holds no checkpoint of '{choice.label}'. Copy the whole run folder, or "
            "continue an interrupted run with --resume."
        )
    state, history = checkpoint
    if not choice.method.personalised:
        # Client state is of use to the next round alone, and there is none.
        state = replace(state, client_state={})
    return Trained(history, state, run, choice, folder)
