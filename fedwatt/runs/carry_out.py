"""The steps of a run, the same for simulated vehicles and for vehicles on the road.

1. Open the fleet, and refuse what cannot work while nothing is written yet.
2. Train the level model, where there is one: a run of its own, in RUN/level.
3. Share the hills.
4. Train each method from its last checkpoint on, evaluate its models, write tables and models.
5. Work out what vehicles would have without federating, for comparison.
6. Share the routes, where a real fleet is asked to.
7. Describe the run in environment.json, which marks it as finished.

What differs between a simulation and a real fleet is its `Site`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar

from fedwatt.elevation.level import LEVEL
from fedwatt.federation import State
from fedwatt.federation.records import Row
from fedwatt.files import write_text
from fedwatt.observers import Observer
from fedwatt.privacy import Budget, budget_for
from fedwatt.runs.checkpoint import Origin, latest_checkpoint, memory_folder
from fedwatt.runs.config import MethodChoice, RunConfig, to_toml
from fedwatt.runs.elevation import elevation_spending, learns_elevation
from fedwatt.runs.environment import describe_fleet, participation_hashes
from fedwatt.runs.folder import claim, refuse_other_run, run_hash
from fedwatt.runs.level import LevelObserver, level_config
from fedwatt.runs.provenance import provenance
from fedwatt.runs.results import RunResults
from fedwatt.runs.tables import write_table
from fedwatt.runs.train import Rounds, train_method
from fedwatt.windows import Fleet

REFERENCES: Final = "baselines"  # the table of baselines
FINISHED: Final = "environment.json"  # the file that a run folder gets last


@dataclass(frozen=True)
class Run:
    """A configuration, the folder it fills, and who follows it."""

    config: RunConfig
    out: Path
    observer: Observer
    resume: bool = False
    """Whether what an interrupted run of the same configuration left is continued."""
    checkpoint_seconds: float = 10.0
    """Least time between two checkpoints of a method."""

    def checkpoints(self, choice: MethodChoice) -> Path:
        """Return the folder of a method's checkpoints."""
        return self.out / "checkpoint" / choice.label

    def level(self) -> "Run | None":
        """Return the run of the level model, in a folder inside this one's; None where there is
        none.
        """
        config = level_config(self.config)
        if config is None:
            return None
        observer = LevelObserver(self.observer)
        return replace(self, config=config, out=self.out / LEVEL, observer=observer)


class ElevationRefresh(Protocol[Rounds]):
    """Gives a method better hills in the midst of its training."""

    def before_round(self, federation: Rounds, state: State) -> tuple[Rounds, State]:
        """Return the federation and state that the next round continues with."""

    def after_training(self, federation: Rounds, state: State, file: Path) -> Rounds:
        """Return the federation of the last round; write its published elevation to `file`."""


Level = TypeVar("Level")  # what a method needs of its level model, to be evaluated with it


class Site(Protocol[Level, Rounds]):
    """The backend of a run: vehicles simulated in this process, or deployed.

    What is not needed in all places does nothing unless it is overridden.
    """

    on_the_road: ClassVar[bool]
    """Whether they are."""
    run: Run
    """The run that they are in."""

    def open(self) -> Fleet:
        """Make the vehicles ready; `fleet` knows them from now on."""

    def fleet(self) -> Fleet:
        """Return the vehicles that are in the run now."""

    def hashes(self) -> dict[str, Any]:
        """Hashes by which two runs can be seen to have the same vehicles."""

    def data_identity(self) -> str:
        """Return the hash of the data that a checkpoint must match to be continued here."""

    def federation(
        self, choice: MethodChoice, *, scratch: Path | None = None, level: Level | None = None
    ) -> Rounds:
        """Return the federation that a method trains in; `scratch` as in `Federation`."""

    def refresh(self, choice: MethodChoice) -> ElevationRefresh[Rounds] | None:
        """Return the refresh of the elevation map during training, or None."""
        return None

    def level_site(self, run: Run) -> "Site[Level, Rounds]":
        """Return the same vehicles in the run of the model without elevation."""

    def finished(self) -> dict[str, Level] | None:
        """By method, what a finished run of a level model left; None: it must be carried out."""
        return None

    def repeated(self, choice: MethodChoice, done: int) -> int:
        """Return rounds of a private method that were done twice, if `done` are in its checkpoint.

        None where a run that is continued repeats its noise.
        """
        return 0

    def share_elevation(self) -> dict[str, Any]:
        """Give every vehicle its hills, where they learn them, and describe what was learned.

        This is the last step before the first method trains.
        """

    def share_routes(self) -> dict[str, Any]:
        """Learn what the vehicles know about routes, where a run does that, and describe it."""
        return {}

    def baselines(self) -> list[Row] | None:
        """Errors of what vehicles would have without federating; None: not known here."""
        return None

    def evaluate(
        self, choice: MethodChoice, federation: Rounds, state: State, level: Level | None
    ) -> tuple[dict[str, list[Row]], Level | None]:
        """Errors of personalised models, and of the kept one if it is used with a level model.

        Also what the method above needs of this one, if this is a run of a level model.
        """


def carry_out(site: Site[Level, Rounds]) -> dict[str, Level]:
    """Train every method of a site's run and fill its folder.

    Of a level model's run, what the methods above it need is returned by method.
    """
    started = datetime.now(UTC)
    run = site.run
    level_run = run.level()
    for part in (run, level_run):
        if part is not None:
            refuse_other_run(part.config, part.out, part.resume)
    fleet = site.open()
    origin = Origin(run_hash(run.config), site.data_identity())
    budgets = _checked(site, fleet, origin)
    # Only now, with the data at hand: a run that cannot begin leaves no folder behind.
    with claim(run.config, run.out, run.resume):
        return _carried_out(site, started, fleet, origin, budgets)


def _carried_out(
    site: Site[Level, Rounds],
    started: datetime,
    fleet: Fleet,
    origin: Origin,
    budgets: Mapping[str, Budget | None],
) -> dict[str, Level]:
    """Train and write, in a folder that is this process's alone."""
    run = site.run
    level_run = run.level()
    write_text(run.out / "config.toml", to_toml(run.config))
    run.observer.on_fleet(fleet)
    levels: dict[str, Level] = {}
    if level_run is not None:
        below = site.level_site(level_run)
        finished = below.finished() if run.resume else None
        levels = carry_out(below) if finished is None else finished
    elevation = site.share_elevation()
    results = RunResults(run.config, run.out)
    needed = {}
    for choice in run.config.methods:
        label = choice.label
        level = levels.pop(label, None)
        outcome = _trained(site, choice, origin, budgets[label], level, results)
        if outcome is not None:
            needed[label] = outcome
    _add_baselines(site)
    routes = site.share_routes()
    called = {h.method: participation_hashes(h.clients) for h in results.histories}
    environment = provenance(results.device, deterministic=run.config.training.deterministic) | {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": list(run.config.seeds),
        "hashes": site.hashes() | {"participation": called},
        "fleet": describe_fleet(site.fleet()),
        "privacy": _spending(site, budgets),
        "elevation": elevation,
        "routes": routes,
        "model_without_elevation": level_run is not None,
    }
    write_text(run.out / FINISHED, json.dumps(environment, indent=2))
    return needed


def _spending(
    site: Site[Level, Rounds], budgets: Mapping[str, Budget | None]
) -> dict[str, dict[str, Any]]:
    """Return the budget that each private method has spent, also against a server that sees
    sums.
    """
    config = site.run.config
    spending = {}
    for label, budget in budgets.items():
        if budget is not None:
            server = budget.seen_by_server.epsilon(config.training.rounds)
            masked = config.secure.enabled and site.on_the_road and isfinite(server)
            spending[label] = asdict(budget) | {"epsilon_server": server if masked else None}
    return spending


def _add_baselines(site: Site[Level, Rounds]) -> None:
    """Write the table of baselines, unless it is there already or not wanted."""
    run = site.run
    if run.config.baselines.enabled and not (run.out / f"{REFERENCES}.parquet").exists():
        rows = site.baselines()
        if rows is not None:
            write_table(run.out, REFERENCES, rows)


def _checked(site: Site[Level, Rounds], fleet: Fleet, origin: Origin) -> dict[str, Budget | None]:
    """Return the privacy budget of each method; refuses whatever would stop the run later."""
    run = site.run
    config = site.run.config
    for choice in config.methods:
        site.federation(choice).check(choice.method)
    budgets = {
        method_choice.label: budget_for(method_choice.method, config.training, fleet)
        for method_choice in config.methods
    }
    if learns_elevation(config):
        elevation_spending(config, fleet)  # refuses noise that nobody can account for
    for choice in config.methods:  # refuses another's, before a level model is trained for nothing
        checkpoint = latest_checkpoint(run.checkpoints(choice), origin)
        method_choice = budgets[choice.label]
        if method_choice is not None:
            repeated = site.repeated(choice, 0 if checkpoint is None else checkpoint[1])
            budgets[choice.label] = replace(method_choice, repeated=repeated)
    return budgets


def _trained(
    site: Site[Level, Rounds],
    choice: MethodChoice,
    origin: Origin,
    budget: Budget | None,
    level: Level | None,
    results: RunResults,
) -> Level | None:
    """Train one method, evaluate its models, and add both to the results."""
    run = site.run
    folder = site.run.checkpoints(choice)
    federation = site.federation(choice, scratch=memory_folder(folder), level=level)
    refresh = site.refresh(choice)
    state, history = train_method(
        federation,
        choice,
        folder,
        run.observer,
        origin,
        run.checkpoint_seconds,
        budget,
        None if refresh is None else refresh.before_round,
    )
    if refresh is not None:
        file = run.out / "elevation" / f"{choice.label}.parquet"
        federation = refresh.after_training(federation, state, file)
    evaluated, needed = site.evaluate(choice, federation, state, level)
    results.add(federation, choice, state, history, evaluated)
    return needed
