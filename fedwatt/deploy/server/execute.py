"""Carry out a plan on connected vehicles, into the same run folder as a simulation."""

from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any, ClassVar

from fedwatt.deploy import log
from fedwatt.deploy.plan.plan import Plan
from fedwatt.deploy.server import members
from fedwatt.deploy.server.backend import DeployedBackend
from fedwatt.deploy.server.buffered_backend import BufferedBackend
from fedwatt.deploy.server.maps import PublishedMap, elevation_of_run, routes_of_run
from fedwatt.deploy.server.members import Roster
from fedwatt.deploy.server.plain_backend import PlainBackend
from fedwatt.deploy.server.requests import RequestChannel, Requests
from fedwatt.deploy.server.run_state import FAILED, FINISHED, RUN_LOCK, RunState, going_on
from fedwatt.deploy.server.secure_backend import SecureBackend
from fedwatt.elevation.exchange import refuse_unmaskable
from fedwatt.errors import FedwattError, RunError, SettingError, counted
from fedwatt.federation import Availability, History, Loop, RoundRecord, State
from fedwatt.federation.records import Row
from fedwatt.files import holding, write_bytes
from fedwatt.runs.config import Deployment, MethodChoice, RunConfig
from fedwatt.runs.observers import Observer
from fedwatt.runs.provenance import fleet_partition
from fedwatt.runs.run import Run, RunBackend
from fedwatt.runs.source import shares_elevation
from fedwatt.windows import Fleet


def refuse_undeployable(config: RunConfig) -> None:
    """Raise if a configuration asks for what only a simulation can do."""
    deploy = config.deploy
    buffer = config.asynchronous.buffer
    if len(config.seeds) != 1:
        raise SettingError(
            f"A deployed fleet trains one model at a time, and seeds are {list(config.seeds)}. Set "
            "seeds = [1], or any one number."
        )
    for name, chosen, why in (
        ("secure.enabled", config.secure.enabled, "a secure sum is of updates to one model"),
        ("deploy.over_selection", deploy.over_selection, "a buffer has no round to close"),
    ):
        if buffer and chosen:
            raise SettingError(
                f"asynchronous.buffer = {buffer} takes updates in as they come, and {why}. Leave "
                f"out {name}, or set asynchronous.buffer = 0."
            )
    _refuse_elevation(config)
    if config.model.mixture:
        raise SettingError(
            "model.mixture needs the sums of all vehicles' windows, which a deployed fleet does "
            "not exchange. Set model.mixture = false, or simulate the run."
        )
    if deploy.over_selection and config.training.sampling != "fixed":
        raise SettingError(
            "deploy.over_selection calls more vehicles than training.sampling = "
            f"'{config.training.sampling}' drew. Set deploy.over_selection = 0, or sampling = "
            "'fixed'."
        )
    ideal = Availability()
    for name in ("p_leave", "p_join", "initially", "reply_loss"):
        if getattr(config.availability, name) != getattr(ideal, name):
            raise SettingError(
                f"availability.{name} simulates what a deployed fleet does by itself. Leave it out."
            )
    for choice in config.methods:
        _refuse_method(deploy, choice)


def _refuse_elevation(config: RunConfig) -> None:
    """Raise if `elevation.source` is one that a deployed fleet cannot use."""
    source = config.elevation.source
    if shares_elevation(config):
        if not config.secure.enabled:
            raise SettingError(
                "A deployed fleet learns its elevation map by secure aggregation only, since sums "
                "over places tell where a vehicle drives. Set secure.enabled = true and "
                "elevation.area, or use elevation.source = 'measured'. So do routes."
            )
        refuse_unmaskable(config.elevation)
    if source not in ("auto", "learn", "measured"):
        raise SettingError(
            f"elevation.source = '{source}' is a file of this machine. Use 'learn' or 'measured' "
            "in a plan."
        )


def _refuse_method(deploy: Deployment, choice: MethodChoice) -> None:
    """Raise if a private method calls spare vehicles: one could decide whose updates count."""
    if choice.method.server.private and deploy.over_selection:
        raise SettingError(
            f"Method '{choice.label}': deploy.over_selection lets one vehicle decide whether the "
            "updates of others count, and the noise is that of a single one. Leave it out."
        )


def execute(
    plan: Plan,
    signed_plan: bytes,
    out: Path,
    channel: RequestChannel,
    observer: Observer,
    *,
    resume: bool = False,
) -> None:
    """Train every method of a plan on the vehicles behind `channel` and fill the run folder `out`.

    A checkpoint is written after every round; with `resume` the run continues after the last one.
    """
    config = plan.config
    refuse_undeployable(config)
    roster = Roster(
        Requests(channel, config.deploy.poll_seconds), plan, signed_plan, out / members.FILE
    )
    with holding(out, RUN_LOCK, going_on(out)):
        fleet = ConnectedFleet(roster)
        run = Run(config, fleet, out, observer, resume, checkpoint_seconds=0.0)
        try:
            run.execute()
        except FedwattError as error:
            fleet.note(FAILED, str(error))
            raise
        fleet.note(FINISHED)


@dataclass
class ConnectedFleet(RunBackend):
    """The backend of a run whose vehicles are connected to a server."""

    deployed: ClassVar[bool] = True

    roster: Roster
    state: RunState = field(init=False)
    backend: DeployedBackend = field(init=False)
    """The vehicles of the method that trains."""

    def note(self, status: str, reason: str = "") -> None:
        """Write down how the run ended, if it began."""
        if hasattr(self, "state"):
            self.state.note(status, reason)

    def open(self, run: Run) -> Fleet:
        """Let vehicles enrol."""
        self.state = RunState.begin(run.folder, self.roster.plan.digest, resume=run.resume)
        if run.resume:
            self.roster.load()
        else:  # left by a run that never began
            self.roster.path.unlink(missing_ok=True)
        self.roster.wait()
        write_bytes(run.folder / "plan.json", self.roster.signed_plan)
        return self.fleet(run)

    def fleet(self, run: Run) -> Fleet:
        """Return the vehicles that have enrolled so far."""
        return self.roster.fleet()

    def hashes(self, run: Run) -> dict[str, Any]:
        """Return a hash of the partition; the server has no data to hash."""
        return {"partition": fleet_partition(self.fleet(run))}

    def data_identity(self, run: Run) -> str:
        """Return the plan's digest: vehicles file their state under it."""
        return self.state.plan

    def loop(self, run: Run, choice: MethodChoice) -> Loop:
        """Return the loop over a method's rounds."""
        config = run.config
        plain = BufferedBackend if config.asynchronous.buffer else PlainBackend
        kind = SecureBackend if config.secure.enabled else plain
        self.backend = kind.of(self.roster, config, choice, self.state)
        return self.backend.loop()

    def repeated(self, choice: MethodChoice, done: int) -> int:
        """Return how many rounds with noise a killed server had done since its last checkpoint."""
        return max(0, self.state.releases.get(choice.label, 0) - done)

    def share_elevation(self, run: Run) -> dict[str, Any]:
        """Learn the elevation map of the run, send it to the vehicles, and describe it."""
        if not shares_elevation(run.config):
            return {}
        learned, vehicles = elevation_of_run(run.folder, self.roster, self.state, resume=run.resume)
        published = PublishedMap(learned, self.roster)
        self.roster.published = published
        published.wait()
        return {"nodes": learned.nodes, "vehicles": vehicles}

    def share_routes(self, run: Run) -> dict[str, Any]:
        """Learn the routes of the run, into RUN/routes.json."""
        published = self.roster.published
        if not run.config.deploy.routes or published is None:
            return {}
        elevation = published.published
        routes = routes_of_run(run.folder, self.roster, self.state, elevation, resume=run.resume)
        if routes is None:
            return {}
        return {"cells": len(routes.driving.keys), "vehicles": routes.vehicles}

    def evaluate(
        self, run: Run, choice: MethodChoice, loop: Loop, state: State
    ) -> dict[str, list[Row]]:
        """Return errors of personalised models."""
        self.roster.refresh()
        errors = self.backend.errors
        rows: dict[str, list[Row]] = {}
        if choice.method.personalised or run.config.personalisation.enabled:
            model = state.weights if choice.method.personalised else state.final_weights
            sent = self.backend.broadcast(state) if choice.method.personalised else {}
            rows["personalised"] = errors.personalised(model, state.round, sent)
        return rows


class LogLines(Observer):
    """Writes a run to the log, a line per round."""

    rounds = 0
    unit = ""

    def on_fleet(self, fleet: Fleet) -> None:
        """Log the participating vehicles."""
        self.unit = fleet.settings.predicts.unit
        log.info("%s take part", fleet.source)

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Log that a method starts or continues."""
        self.rounds = rounds
        log.info("%s: %s", label, f"continuing after round {done}" if done else "begins")

    def on_round(self, label: str, state: State, record: RoundRecord) -> None:
        """Log a round's error, and who was missing."""
        row = record.rounds[0]
        missing = "".join(f", {row[n]} {n}" for n in ("lost", "rejected") if row[n])
        came = f"{row['replies']} of {row['participants']} replies{missing}"
        error = "" if isnan(row["test_rmse"]) else f", RMSE {row['test_rmse']:.4g} {self.unit}"
        seconds = record.seconds["total"]
        log.info(
            "%s: round %d/%d, %s%s, %.1f s", label, state.round, self.rounds, came, error, seconds
        )

    def on_end(self, label: str, history: History) -> None:
        """Log that a method is done; RunError if no vehicle had a part in it."""
        if not any(row["replies"] for row in history.rounds):
            rounds = counted(history.rounds[-1]["round"], "round")
            raise RunError(
                f"{label} has trained nothing: no update counted in {rounds}. The lines above say "
                "what became of them."
            )
        log.info("%s: done, best round %d", label, history.rounds[-1]["best_round"])
