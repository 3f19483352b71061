"""The steps of a run, the same for simulated vehicles and for vehicles on the road.

1. Open the fleet, and refuse what cannot work while nothing is written yet.
2. Share the elevation map.
3. Train each method from its last checkpoint on, evaluate its models, write tables and models.
4. Work out what vehicles would have without federating, for comparison.
5. Share the routes, where a real fleet is asked to.
6. Describe the run in environment.json, which marks it as finished.

What differs between a simulation and a real fleet is its `Site`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

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


class Site(Protocol[Rounds]):
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

    def federation(self, choice: MethodChoice, *, scratch: Path | None = None) -> Rounds:
        """Return the federation that a method trains in; `scratch` as in `Federation`."""

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
        self, choice: MethodChoice, federation: Rounds, state: State
    ) -> dict[str, list[Row]]:
        """Return the errors of models that are made after the last round, by the model's name."""


def carry_out(site: Site[Rounds]) -> None:
    """Train every method of a site's run and fill its folder."""
    started = datetime.now(UTC)
    run = site.run
    refuse_other_run(run.config, run.out, run.resume)
    fleet = site.open()
    origin = Origin(run_hash(run.config), site.data_identity())
    budgets = _checked(site, fleet, origin)
    # Only now, with the data at hand: a run that cannot begin leaves no folder behind.
    with claim(run.config, run.out, run.resume):
        _carried_out(site, started, fleet, origin, budgets)


def _carried_out(
    site: Site[Rounds],
    started: datetime,
    fleet: Fleet,
    origin: Origin,
    budgets: Mapping[str, Budget | None],
) -> None:
    """Train and write, in a folder that is this process's alone."""
    run = site.run
    write_text(run.out / "config.toml", to_toml(run.config))
    run.observer.on_fleet(fleet)
    elevation = site.share_elevation()
    results = RunResults(run.config, run.out)
    for choice in run.config.methods:
        _train_and_evaluate(site, choice, origin, budgets[choice.label], results)
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
    }
    write_text(run.out / FINISHED, json.dumps(environment, indent=2))


def _spending(
    site: Site[Rounds], budgets: Mapping[str, Budget | None]
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


def _add_baselines(site: Site[Rounds]) -> None:
    """Write the table of baselines, unless it is there already or not wanted."""
    run = site.run
    if run.config.baselines.enabled and not (run.out / f"{REFERENCES}.parquet").exists():
        rows = site.baselines()
        if rows is not None:
            write_table(run.out, REFERENCES, rows)


def _checked(site: Site[Rounds], fleet: Fleet, origin: Origin) -> dict[str, Budget | None]:
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
    for choice in config.methods:
        checkpoint = latest_checkpoint(run.checkpoints(choice), origin)
        method_choice = budgets[choice.label]
        if method_choice is not None:
            repeated = site.repeated(choice, 0 if checkpoint is None else checkpoint[1])
            budgets[choice.label] = replace(method_choice, repeated=repeated)
    return budgets


def _train_and_evaluate(
    site: Site[Rounds],
    choice: MethodChoice,
    origin: Origin,
    budget: Budget | None,
    results: RunResults,
) -> None:
    """Train one method, evaluate its models, and add both to the results."""
    run = site.run
    folder = site.run.checkpoints(choice)
    federation = site.federation(choice, scratch=memory_folder(folder))
    state, history = train_method(
        federation, choice, folder, run.observer, origin, run.checkpoint_seconds, budget
    )
    rows = site.evaluate(choice, federation, state)
    results.add(federation, choice, state, history, rows)
