"""Carry out a configuration on a real fleet, into the same run folder as a simulation."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedwatt.data import Fleet
from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.level import best_weights
from fedwatt.deploy.memory import level_run
from fedwatt.deploy.messages import Content
from fedwatt.deploy.remote_fleet import RemoteFleet
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.secure_fleet import SecureFleet
from fedwatt.deploy.state import RunState
from fedwatt.deploy.terrain_remote import Hills, hills_of_run
from fedwatt.errors import SettingError
from fedwatt.federation import Availability, Loop
from fedwatt.federation.records import Row
from fedwatt.files import write_text
from fedwatt.runs.checkpoint import Origin
from fedwatt.runs.config import MethodChoice, RunConfig, to_toml
from fedwatt.runs.environment import (
    describe_environment,
    describe_fleet,
    hash_of,
    participation_hashes,
)
from fedwatt.runs.execute import (
    Observer,
    OfLevel,
    budget_for,
    refuse_other_run,
    run_hash,
    terrain_facts,
    terrain_spending,
    train_method,
)
from fedwatt.runs.hills import learns_hills, refuse_unmaskable
from fedwatt.runs.level import LEVEL, level_config
from fedwatt.runs.results import RunResults

FINISHED: Final = "environment.json"
"""What a run folder gets last."""


def refuse_undeployable(config: RunConfig) -> None:
    """Raise if a configuration asks for what only a simulation can do."""
    if len(config.seeds) != 1:
        raise SettingError(
            f"A real fleet trains one model at a time, and seeds are {list(config.seeds)}. Set "
            "seeds = [1], or any one number."
        )
    if config.asynchronous.buffer:
        raise SettingError(
            "A deployment has rounds, and asynchronous.buffer asks for a buffer. Set it to 0; "
            "deploy.round_seconds keeps slow vehicles from holding up the others."
        )
    if learns_hills(config):
        if not config.secure.enabled:
            raise SettingError(
                "A real fleet learns its hills under masks only, since sums over places tell where "
                "a vehicle drives. Set secure.enabled = true and terrain.area, or put a field into "
                "every vehicle ('deploy vehicle --field') and name it in terrain.source, or use "
                "terrain.source = 'measured'."
            )
        refuse_unmaskable(config)
    level_config(config)  # refuses noise for privacy, which a level model would spend twice
    ideal = Availability()
    for name in ("p_leave", "p_join", "initially", "reply_loss"):
        if getattr(config.availability, name) != getattr(ideal, name):
            raise SettingError(
                f"availability.{name} simulates what a real fleet does by itself. Leave it out."
            )
    for choice in config.methods:
        for rule in choice.method.local:
            if rule.simulated_only:
                raise SettingError(
                    f"Method '{choice.label}': {type(rule).__name__} simulates "
                    f"{rule.simulated_only} and has no place on a real fleet."
                )


def execute(
    config: RunConfig, out: Path, grid: Grid, observer: Observer, *, resume: bool = False
) -> None:
    """Train every method of `config` on the vehicles behind `grid` and fill the run folder `out`.

    A run with hills trains its level model first, into a run folder in its own, with the vehicles
    of the one roster. A checkpoint is written after every round; with `resume` the run goes on
    after the last one.
    """
    started = datetime.now(UTC)
    refuse_undeployable(config)
    below = level_config(config)
    for part, folder in ((config, out), (below, out / LEVEL)):
        if part is not None:
            refuse_other_run(part, folder, resume)
    state = RunState.begin(out, resume=resume)
    roster = Roster(
        Exchange(grid, config.deploy.poll_seconds),
        Content({"config": to_toml(config)}),
        config.data,
        out / "roster.json",
        config.deploy.enrolment_seconds,
        config.secure.windows_limit,
    )
    if resume:
        roster.load()
    roster.wait(config.deploy.vehicles, config.deploy.enrolment_seconds)
    run = _Run(config, out, roster, state, observer, resume, started)
    run.check()
    write_text(out / "config.toml", run.text)
    observer.fleet_ready(roster.fleet())
    run.train({} if below is None else run.level(below))


@dataclass(frozen=True)
class _Run:
    """A run folder that is to be filled by the vehicles of a roster."""

    config: RunConfig
    out: Path
    roster: Roster
    state: RunState
    observer: Observer
    resume: bool
    started: datetime

    @property
    def text(self) -> str:
        return to_toml(self.config)

    def check(self) -> None:
        """Raise if it cannot begin with these vehicles."""
        fleet = self.roster.fleet()
        for choice in self.config.methods:
            self.loop(self.fleet(choice)).check(choice.method)
            budget_for(self.config, choice, fleet)  # refuses what has no ε
        if learns_hills(self.config):
            terrain_spending(self.config, fleet)  # refuses noise that nobody can account for

    def fleet(self, choice: MethodChoice, level: NDArray[Any] | None = None) -> RemoteFleet:
        """The vehicles with which a method trains; `level` is the level model beside it, if any."""
        return RemoteFleet.of(self.roster, self.config, choice, self.state, self.text, level)

    def loop(self, fleet: RemoteFleet) -> Loop:
        """The loop over their rounds, in which replies are added up in secret if so configured."""
        return fleet.loop(SecureFleet(fleet, self.state) if self.config.secure.enabled else None)

    def level(self, config: RunConfig) -> dict[str, NDArray[Any]]:
        """The best level model [D] of each method: trained now, or before the run was cut off."""
        out = self.out / LEVEL
        if not (self.resume and (out / FINISHED).exists()):
            number = level_run(self.state.run)
            own = replace(
                self,
                config=config,
                out=out,
                state=RunState.begin(out, resume=self.resume, number=number),
                observer=OfLevel(self.observer),
                started=datetime.now(UTC),
            )
            write_text(out / "config.toml", own.text)
            own.train({})
        layout = config.model.on(self.roster.fleet(config.data)).layout
        return {
            choice.label: best_weights(out, choice.label, config.seeds[0], layout)
            for choice in config.methods
        }

    def train(self, level: Mapping[str, NDArray[Any]]) -> None:
        """Train all methods; `level` are the level models beside them, if any."""
        config, out, roster = self.config, self.out, self.roster
        fleet = roster.fleet(config.data)
        budgets = {choice.label: budget_for(config, choice, fleet) for choice in config.methods}
        facts = self._learn_hills(fleet) if learns_hills(config) else {}
        results = RunResults(config, out)
        for choice in config.methods:
            beside = level.get(choice.label)
            vehicles = self.fleet(choice, beside)
            loop = self.loop(vehicles)
            state, history = train_method(
                loop,
                choice,
                out / "checkpoint" / choice.label,
                self.observer,
                Origin(run_hash(config), self.state.run),
                0.0,
                budgets[choice.label],
            )
            roster.refresh()
            judged: dict[str, list[Row]] = {}
            if config.personal.enabled:
                judged["personal"] = vehicles.errors.personal(state.best_weights)
            if beside is not None:
                judged["best"] = vehicles.errors.in_use(state.best_weights)
            results.add(loop, choice, state, history, judged)
        fleet = roster.fleet(config.data)
        called = {h.method: participation_hashes(h.clients) for h in results.histories}
        parts = ((c.name, c.held_out, len(c.ends["train"])) for c in fleet.clients)
        environment = describe_environment(loop.device) | {
            "started": self.started.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seeds": list(config.seeds),
            "hashes": {"partition": hash_of(parts), "participation": called},
            "fleet": describe_fleet(fleet),
            "privacy": {label: asdict(own) for label, own in budgets.items() if own is not None},
            "terrain": facts,
            "level_model": bool(level),
        }
        write_text(out / FINISHED, json.dumps(environment, indent=2))

    def _learn_hills(self, fleet: Fleet) -> dict[str, Any]:
        """Learn the field of the run, hand it to the vehicles, and say what it cost."""
        config, state, text = self.config, self.state, self.text
        field, teachers = hills_of_run(
            self.out, self.roster, config, state, text, resume=self.resume
        )
        hills = Hills(field, {"run": state.run, "config": text}, config.deploy.round_seconds)
        self.roster.provision = hills
        hills.wait(self.roster)
        return terrain_facts(config, fleet, field, teachers, state.learnings)
