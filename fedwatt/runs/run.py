"""A run: methods trained on the vehicles of a backend, in memory or into a run folder.

    Run.on(synthetic_fleet(), training=Training(rounds=30)).train("fo-ri-fedavg")    # in memory
    Run(config, out=Path("runs/first")).execute()       # every method of a configuration

The steps of `execute` are the same for simulated and for deployed vehicles:

1. Open the fleet, and refuse what cannot work while nothing is written yet.
2. Share the elevation map.
3. Train each method from its last checkpoint on, evaluate its models, write tables and models.
4. Compute baselines, for comparison.
5. Share the routes, where a deployed fleet is asked to.
6. Describe the run in environment.json, which marks it as finished.

Simulated and deployed vehicles differ in their `RunBackend`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedwatt.errors import SettingError
from fedwatt.evaluation import Baselines
from fedwatt.federation import Federation, Loop, RoundRecord, State
from fedwatt.federation.federation import Network
from fedwatt.federation.records import Row
from fedwatt.federation.settings import Asynchronous, Availability, Training
from fedwatt.files import write_text
from fedwatt.methods import Method, get
from fedwatt.privacy import Budget, budget_for
from fedwatt.runs.config import MethodChoice, RunConfig, to_toml
from fedwatt.runs.folder import (
    CheckpointOrigin,
    claim,
    latest_checkpoint,
    refuse_other_run,
    run_hash,
    train_method,
)
from fedwatt.runs.model_file import RunResults
from fedwatt.runs.objects import configuration, named
from fedwatt.runs.observers import SILENT, Observer, Observers, OnRound, ProgressLog
from fedwatt.runs.provenance import describe_fleet, participation_hashes, provenance
from fedwatt.runs.tables import write_table
from fedwatt.windows import Fleet

if TYPE_CHECKING:
    from fedwatt.runs.trained import Trained

BASELINES = "baselines"
"""The table of baselines."""
FINISHED = "environment.json"
"""The file that a run folder gets last."""


class RunBackend(ABC):
    """The vehicles of a run: simulated in this process, spread over a Ray cluster, or deployed.

    `open` comes first.
    """

    deployed: ClassVar[bool]

    @abstractmethod
    def open(self, run: "Run") -> Fleet:
        """Make the vehicles ready and return them."""

    @abstractmethod
    def fleet(self, run: "Run") -> Fleet:
        """Return the vehicles that are in the run now."""

    @abstractmethod
    def hashes(self, run: "Run") -> dict[str, Any]:
        """Return hashes that show whether two runs have the same vehicles."""

    @abstractmethod
    def data_identity(self, run: "Run") -> str:
        """Return the hash of the data that a checkpoint must match to be continued."""

    @abstractmethod
    def loop(self, run: "Run", choice: MethodChoice) -> Loop:
        """Return the loop over a method's rounds."""

    def repeated(self, choice: MethodChoice, done: int) -> int:
        """Return how many noisy rounds are repeated, if `done` rounds are in the checkpoint."""
        return 0

    @abstractmethod
    def share_elevation(self, run: "Run") -> dict[str, Any]:
        """Give every vehicle its elevation map and return its description.

        This is the last step before the first method trains.
        """

    def share_routes(self, run: "Run") -> dict[str, Any]:
        """Learn the route model of the vehicles, where the run asks for it, and describe it."""
        return {}

    def baselines(self, run: "Run") -> list[Row] | None:
        """Return the errors of the baselines; None: they cannot be computed here."""
        return None

    @abstractmethod
    def evaluate(
        self, run: "Run", choice: MethodChoice, loop: Loop, state: State
    ) -> dict[str, list[Row]]:
        """Return error rows by model (personalised, final)."""


def _simulation() -> RunBackend:
    from fedwatt.runs.simulation import Simulation

    return Simulation()


@dataclass(frozen=True, eq=False)
class Run:
    """A configuration, the vehicles that carry it out, and the folder that it fills."""

    config: RunConfig
    backend: RunBackend = field(default_factory=_simulation)
    out: Path | None = None
    """The run folder; None: results stay in memory."""
    observer: Observer = SILENT
    resume: bool = False
    """Whether an interrupted run of the same configuration is continued, bit for bit."""
    checkpoint_seconds: float = 10.0
    """Least time between two checkpoints of a method."""

    @classmethod
    def on(
        cls,
        fleet: Fleet,
        model: str | Network = "mlp",
        *,
        training: Training | None = None,
        availability: Availability | None = None,
        asynchronous: Asynchronous | None = None,
        seeds: Sequence[int] = (1,),
        device: str = "auto",
    ) -> "Run":
        """Return a run on vehicles at hand; the arguments are those of `Federation`.

        A model is a name, a `torch.nn.Module`, or a class or function that makes one.
        """
        from fedwatt.runs.simulation import Simulation

        federation = Federation(
            fleet,
            model,
            training=training,
            availability=availability,
            asynchronous=asynchronous,
            seeds=seeds,
            device=device,
        )
        return cls(configuration(federation), Simulation(federation, fleet, model))

    def train(
        self,
        method: str | Method,
        *,
        on_round: Callable[[State, RoundRecord], None] | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        baselines: bool = True,
        observers: Sequence[Observer] = (),
    ) -> "Trained":
        """Train one method and return its result; `on_round` and `observers` follow it.

        With `out` the results go to that run folder, checkpoint after checkpoint, and with
        `resume` an interrupted training there is continued. `baselines` are computed for the
        folder, as by `fedwatt run`.
        """
        from fedwatt.runs.trained import Trained, read_trained

        choice = named(get(method) if isinstance(method, str) else method)
        config = replace(self.config, methods=(choice,), baselines=Baselines(enabled=baselines))
        observer = Observers((OnRound(on_round), *observers))
        run = replace(self, config=config, observer=observer)
        if out is not None:
            replace(run, out=Path(out), resume=resume).execute()
            return read_trained(Path(out), self.backend)
        fleet = run.backend.open(run)
        loop = run.backend.loop(run, choice)
        budget = budget_for(choice.method, loop.training, fleet)
        observer.on_fleet(fleet)
        observer.on_start(choice.label, 0, loop.training.rounds)
        result = loop.train(
            choice.method,
            on_round=partial(observer.on_round, choice.label),
            epsilon=None if budget is None else budget.epsilon,
        )
        observer.on_end(choice.label, result.history)
        return Trained(result.history, result.state, run, choice)

    def execute(self) -> None:
        """Train every method of the configuration and fill the run folder.

        Where there is nothing to resume, the run begins. A checkpoint is written at most every
        `checkpoint_seconds` and whenever training stops.
        """
        observer = Observers((self.observer, ProgressLog(self.folder)))
        replace(self, observer=observer).carry_out()
        observer.on_finish(self.folder)

    @property
    def folder(self) -> Path:
        """The run folder."""
        if self.out is None:
            raise SettingError("This run has no folder: write Run(config, out=FOLDER).")
        return self.out

    def checkpoints(self, choice: MethodChoice) -> Path:
        """Return the folder of a method's checkpoints."""
        return self.folder / "checkpoint" / choice.label

    def carry_out(self) -> None:
        """Fill the run folder."""
        started = datetime.now(UTC)
        refuse_other_run(self.config, self.folder, self.resume)
        fleet = self.backend.open(self)
        origin = CheckpointOrigin(run_hash(self.config), self.backend.data_identity(self))
        budgets = self._checked_budgets(fleet, origin)
        # Only now, with the data at hand: a run that cannot begin leaves no folder behind.
        with claim(self.config, self.folder, self.resume):
            self._fill(started, fleet, origin, budgets)

    def _fill(
        self,
        started: datetime,
        fleet: Fleet,
        origin: CheckpointOrigin,
        budgets: Mapping[str, Budget | None],
    ) -> None:
        """Train and write, in a folder that is this process's alone."""
        backend = self.backend
        write_text(self.folder / "config.toml", to_toml(self.config))
        self.observer.on_fleet(fleet)
        elevation = backend.share_elevation(self)
        results = RunResults(self.config, self.folder)
        for choice in self.config.methods:
            loop = backend.loop(self, choice)
            state, history = train_method(
                loop,
                choice,
                self.checkpoints(choice),
                self.observer,
                origin,
                self.checkpoint_seconds,
                budgets[choice.label],
            )
            rows = backend.evaluate(self, choice, loop, state)
            results.add(loop, choice, state, history, rows)
        missing = not (self.folder / f"{BASELINES}.parquet").exists()
        if self.config.baselines.enabled and missing:
            baselines = backend.baselines(self)
            if baselines is not None:
                write_table(self.folder, BASELINES, baselines)
        routes = backend.share_routes(self)
        called = {h.method: participation_hashes(h.clients) for h in results.histories}
        deterministic = self.config.training.deterministic
        environment = provenance(results.device, deterministic=deterministic) | {
            "started": started.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seeds": list(self.config.seeds),
            "hashes": backend.hashes(self) | {"participation": called},
            "fleet": describe_fleet(backend.fleet(self)),
            "privacy": self._spending(budgets),
            "elevation": elevation,
            "routes": routes,
        }
        write_text(self.folder / FINISHED, json.dumps(environment, indent=2))

    def _checked_budgets(self, fleet: Fleet, origin: CheckpointOrigin) -> dict[str, Budget | None]:
        """Return the privacy budget of each method; refuse whatever would stop the run later."""
        config = self.config
        for choice in config.methods:
            self.backend.loop(self, choice).check(choice.method)
        budgets: dict[str, Budget | None] = {}
        for choice in config.methods:
            # Refuses another run's checkpoint before any model is trained.
            checkpoint = latest_checkpoint(self.checkpoints(choice), origin)
            budget = budget_for(choice.method, config.training, fleet)
            if budget is not None:
                done = 0 if checkpoint is None else checkpoint[1]
                budget = replace(budget, repeated=self.backend.repeated(choice, done))
            budgets[choice.label] = budget
        return budgets

    def _spending(self, budgets: Mapping[str, Budget | None]) -> dict[str, dict[str, Any]]:
        """Return the ε that each private method has spent, also against a server that sees sums."""
        spending = {}
        for label, budget in budgets.items():
            if budget is not None:
                server = budget.seen_by_server.epsilon(self.config.training.rounds)
                secure = self.config.secure.enabled and self.backend.deployed and isfinite(server)
                spending[label] = asdict(budget) | {"epsilon_server": server if secure else None}
        return spending
