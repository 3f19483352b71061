"""Carry out a configuration on a real fleet, into the same run folder as a simulation."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedwatt.deploy.buffered_road import BufferedRoad
from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.hills_on_server import PublishedHills, hills_of_run
from fedwatt.deploy.memory import level_run
from fedwatt.deploy.prompt_grid import PromptGrid
from fedwatt.deploy.relay_roster import RelayRoster
from fedwatt.deploy.remote_fleet import RemoteFleet
from fedwatt.deploy.road_fleet import RoadFleet
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.routes_on_server import routes_of_run
from fedwatt.deploy.secure_fleet import SecureFleet
from fedwatt.deploy.state import FAILED, FINISHED, RUN_LOCK, RunState, going_on
from fedwatt.deploy.summed_fleet import SummedFleet
from fedwatt.deploy.updates import update_fault
from fedwatt.elevation.exchange import refuse_unmaskable
from fedwatt.errors import FedwattError, SettingError
from fedwatt.federation import Availability, Loop, State
from fedwatt.federation.records import Row
from fedwatt.files import holding
from fedwatt.observers import Observer, Observers, ProgressLog
from fedwatt.runs.carry_out import FINISHED as COMPLETE
from fedwatt.runs.carry_out import Run, Site, carry_out
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.deployment import FULL, Deployment
from fedwatt.runs.earlier import earlier_toml
from fedwatt.runs.environment import fleet_partition
from fedwatt.runs.hills import shares_hills, terrain_facts
from fedwatt.runs.level import level_config
from fedwatt.runs.model_file import kept_weights
from fedwatt.runs.own_code import refuse_uninstalled
from fedwatt.windows import Fleet


def refuse_undeployable(config: RunConfig) -> None:
    """Raise if a configuration asks for what only a simulation can do."""
    refuse_uninstalled(config.plugins)
    if len(config.seeds) != 1:
        raise SettingError(
            f"A real fleet trains one model at a time, and seeds are {list(config.seeds)}. Set "
            "seeds = [1], or any one number."
        )
    refuse_buffer(config)
    if shares_hills(config):
        if not config.secure.enabled:
            raise SettingError(
                "A real fleet learns its hills under masks only, since sums over places tell where "
                "a vehicle drives. Set secure.enabled = true and terrain.area, or put a field into "
                "every vehicle ('deploy vehicle --field') and name it in terrain.source, or use "
                "terrain.source = 'measured'. deploy.routes needs masks as well."
            )
        refuse_unmaskable(config.terrain)
    if config.model.mixture:
        raise SettingError(
            "model.mixture needs the sums of all vehicles' windows, which a real fleet does not "
            "exchange yet. Set model.mixture = false, or simulate the run."
        )
    if config.secure.enabled and config.deploy.update_type != FULL:
        raise SettingError(
            f"deploy.update_type = '{config.deploy.update_type}' rounds single replies, and under "
            "masks replies are words of secure.bits each, which no rounding makes shorter. Set "
            f"deploy.update_type = '{FULL}'; secure.bits = 32 with closer limits makes words short."
        )
    refuse_over_selection(config)
    level_config(config)  # refuses noise for privacy, which a level model would spend twice
    ideal = Availability()
    for name in ("p_leave", "p_join", "initially", "reply_loss"):
        if getattr(config.availability, name) != getattr(ideal, name):
            raise SettingError(
                f"availability.{name} simulates what a real fleet does by itself. Leave it out."
            )
    for choice in config.methods:
        refuse_reply_counts(config.deploy, choice)
        if fault := update_fault(choice.method, config.deploy.update_type):
            raise SettingError(f"Method '{choice.label}': {fault}")
        for rule in choice.method.local:
            if rule.simulated_only:
                raise SettingError(
                    f"Method '{choice.label}': {type(rule).__name__} simulates "
                    f"{rule.simulated_only} and has no place on a real fleet."
                )


def refuse_buffer(config: RunConfig) -> None:
    """Raise if replies are to be buffered, and cannot be."""
    if not config.asynchronous.buffer:
        return
    for name, asked, why in (
        ("secure.enabled", config.secure.enabled, "a sum under masks is of replies to one model"),
        ("deploy.relays", config.deploy.relays, "a relay's sum is of replies to one model"),
        ("deploy.over_selection", config.deploy.over_selection, "a buffer has no round to close"),
    ):
        if asked:
            raise SettingError(
                f"asynchronous.buffer = {config.asynchronous.buffer} takes replies in as they "
                f"come, and {why}. Leave out {name}, or set asynchronous.buffer = 0."
            )


def refuse_over_selection(config: RunConfig) -> None:
    """Raise if rounds are to be closed with the first replies, and cannot be."""
    if not config.deploy.over_selection:
        return
    if config.training.sampling != "fixed":
        raise SettingError(
            "deploy.over_selection calls more vehicles than training.sampling = "
            f"'{config.training.sampling}' drew, so none of them would have been drawn by that. "
            "Set deploy.over_selection = 0, or sampling = 'fixed'."
        )
    if config.deploy.relays:
        raise SettingError(
            "deploy.over_selection closes a round with the first replies, and relays pass on the "
            "sum of all that were asked. Set one of deploy.over_selection and deploy.relays to 0."
        )


def refuse_reply_counts(deploy: Deployment, choice: MethodChoice) -> None:
    """Raise if a private method's rounds would stand or fall with single vehicles.

    Where a round counts only with m replies, one vehicle more or less moves its sum by m · c and
    not by c: it decides about the replies of m vehicles.
    """
    if not choice.method.server.private:
        return
    for name in ("minimum_replies", "over_selection"):
        if getattr(deploy, name) != getattr(Deployment(), name):
            raise SettingError(
                f"Method '{choice.label}': deploy.{name} lets one vehicle decide whether the "
                "replies of others count, and the noise is that of a single reply. Leave it out."
            )


def execute(
    config: RunConfig,
    out: Path,
    grid: Grid | PromptGrid,
    observer: Observer,
    *,
    resume: bool = False,
) -> None:
    """Train every method of `config` on the vehicles behind `grid` and fill the run folder `out`.

    A run with hills trains its level model first, into a run folder inside its own, with the
    vehicles of the one roster. A checkpoint is written after every round; with `resume` the run
    goes on after the last one.
    """
    refuse_undeployable(config)
    exchange = Exchange(grid, config.deploy.poll_seconds)
    kind = RelayRoster if config.deploy.relays else Roster
    roster = kind(exchange, config, out / "roster.jsonl")
    followed = Observers((observer, ProgressLog(out)))
    run = Run(config, out, followed, resume, checkpoint_seconds=0.0)
    with holding(out, RUN_LOCK, going_on(out)):
        site = RealFleet(run, roster)
        try:
            carry_out(site)
        except FedwattError as error:
            site.note(FAILED, str(error))
            raise
        site.note(FINISHED)
    followed.on_finish(out)


@dataclass
class RealFleet(Site[NDArray[Any], Loop]):
    """The `Site` of a run whose vehicles are on the road.

    What a method needs of its level model is that model's kept weights [D]. Hills are learned once,
    and vehicles send no errors of models that they make alone.
    """

    on_the_road: ClassVar[bool] = True

    run: Run
    roster: Roster
    number: str = ""  # of a level model's run; the run itself draws its own
    state: RunState = field(init=False)
    asked: RoadFleet = field(init=False)
    """The vehicles of the method that trains; what they said of a model is asked for once."""

    def note(self, status: str, about: str = "") -> None:
        """Write down how the run ended, if it began."""
        if hasattr(self, "state"):
            self.state.note(status, about)

    def open(self) -> Fleet:
        """Let vehicles enrol; those of a level model's run have enrolled already."""
        self.state = RunState.begin(self.run.out, resume=self.run.resume, number=self.number)
        if not self.number:
            if self.run.resume:
                self.roster.load()
            else:  # what a run left that never began
                self.roster.path.unlink(missing_ok=True)
            self.roster.wait()
        return self.fleet()

    def fleet(self) -> Fleet:
        """The vehicles that have enrolled so far."""
        return self.roster.fleet(self.run.config.data)

    def hashes(self) -> dict[str, Any]:
        """A hash of the partition; the server has no data to hash."""
        return {"partition": fleet_partition(self.fleet())}

    def data_identity(self) -> str:
        """The number of the run: vehicles file their memory under it."""
        return self.state.run

    def federation(
        self,
        choice: MethodChoice,
        *,
        scratch: Path | None = None,
        level: NDArray[Any] | None = None,
    ) -> Loop:
        """The loop over a method's rounds, with sums in secret if so configured."""
        config = self.run.config
        seen = BufferedRoad if config.asynchronous.buffer else RemoteFleet
        summed = SummedFleet if config.deploy.relays else seen
        kind = SecureFleet if config.secure.enabled else summed
        self.asked = kind.of(self.roster, self.run.config, choice, self.state, level)
        return self.asked.loop()

    def repeated(self, choice: MethodChoice, done: int) -> int:
        """Noisy models that were made before a server was killed, and are in no checkpoint."""
        return max(0, self.state.releases.get(choice.label, 0) - done)

    def level_site(self, run: Run) -> "RealFleet":
        """The same roster, with a memory of its own on board."""
        return RealFleet(run, self.roster, level_run(self.state.run))

    def finished(self) -> dict[str, NDArray[Any]] | None:
        """The kept models of a finished run, so that no vehicle is asked again about them."""
        config, out = self.run.config, self.run.out
        if not (out / COMPLETE).exists():
            return None
        layout = config.model.on(self.fleet()).layout
        return {
            choice.label: kept_weights(out, choice.label, config.seeds[0], layout)
            for choice in config.methods
        }

    def share_hills(self) -> dict[str, Any]:
        """Learn the field of the run, hand it to the vehicles, and say what it cost."""
        config, state = self.run.config, self.state
        if not shares_hills(config):
            return {}
        fleet = self.fleet()
        out, resume = self.run.out, self.run.resume
        learned, contributors = hills_of_run(out, self.roster, state, resume=resume)
        common = {"run": state.run, "config": earlier_toml(config)}
        hills = PublishedHills(learned, common, config.deploy.round_seconds)
        self.roster.provision = hills
        hills.wait(self.roster)
        return terrain_facts(config, fleet, learned, contributors, state.learnings)

    def share_routes(self) -> dict[str, Any]:
        """Learn what the vehicles know about routes, into RUN/routes.json."""
        hills = self.roster.provision
        if not self.run.config.deploy.routes or hills is None:
            return {}
        found = routes_of_run(self.run.out, self.roster, self.state, hills, resume=self.run.resume)
        if found is None:
            return {}
        return {"cells": len(found.driving.keys), "vehicles": found.vehicles}

    def judge(
        self, choice: MethodChoice, federation: Loop, state: State, level: NDArray[Any] | None
    ) -> tuple[dict[str, list[Row]], NDArray[Any] | None]:
        """Errors that vehicles report of their personal models and of what they would use."""
        self.roster.refresh()
        errors = self.asked.errors
        judged: dict[str, list[Row]] = {}
        if choice.method.personal or self.run.config.personal.enabled:
            model = state.weights if choice.method.personal else state.kept_weights
            sent = self.asked.sent(state) if choice.method.personal else {}
            judged["personal"] = errors.personal(model, state.round, sent)
        if level is not None:
            judged["kept"] = errors.in_use(state.kept_weights)
        kept = state.kept_weights[0, : federation.model.layout.size].cpu().numpy()
        return judged, kept if self.number else None
