"""`fedwatt run`: train methods on a fleet and write a run folder with its report."""

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli import options
from fedwatt.cli.console import Json, console, errors, wait_for_interrupt
from fedwatt.cli.progress import RunView, show_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fedwatt.runs.config import RunConfig
    from fedwatt.runs.observers import Observer
    from fedwatt.runs.simulation import Simulation
    from fedwatt.windows import Fleet

Participation = Annotated[
    float | None,
    typer.Option(
        "--participation", metavar="X", help="Set the share of vehicles that train in a round."
    ),
]
Personalise = Annotated[
    bool | None,
    typer.Option(
        "--personalise/--no-personalise",
        help="Fine-tune the model in each vehicle. [default: on]",
    ),
]
Elevation = Annotated[
    bool | None,
    typer.Option(
        "--elevation/--no-elevation",
        help="Use measured or learned elevation. [default: on, where data allow]",
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Train the network alone, as the paper does.")]
Baselines = Annotated[
    bool,
    typer.Option(
        "--baselines/--no-baselines",
        help="Train local-only models for comparison. [default: on]",
        show_default=False,
    ),
]
Watch = Annotated[bool, typer.Option("--watch", help="Serve a live page of the run.")]


def run(
    config: options.Config = None,
    data: options.Data = None,
    method: options.Methods = None,
    elevation: Elevation = None,
    personalise: Personalise = None,
    plain: Plain = False,
    baselines: Baselines = True,
    rounds: options.Rounds = None,
    learning_rate: options.LearningRate = None,
    vehicles: options.Vehicles = None,
    participation: Participation = None,
    seeds: options.Seeds = None,
    assignments: options.Assignments = None,
    device: options.Device = None,
    ray: options.Ray = None,
    trust: options.Trust = None,
    resume: options.Resume = False,
    out: options.RunOut = None,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """Train methods on a fleet and write a run folder with a report."""
    from fedwatt.runs.defaults import RECORDED, WITH_ELEVATION, WITHOUT_ELEVATION, choose_recipe
    from fedwatt.runs.run import Run

    out = options.folder_for(out, resume)
    with_elevation = RECORDED if data else WITH_ELEVATION
    features = {True: with_elevation, False: WITHOUT_ELEVATION}.get(elevation)  # type: ignore[arg-type]
    chosen = options.configuration(
        config,
        out,
        resume=resume,
        methods=method,
        options={
            "training.rounds": rounds,
            "training.learning_rate": learning_rate,
            "training.participation": participation,
            "fleet.vehicles": vehicles,
            "fleet.data": data,
            "device": device,
            "data.features": features,
            "personalisation.enabled": personalise,
            "baselines.enabled": None if baselines else False,
        },
        seeds=seeds,
        assignments=assignments,
        recipe=None if plain else choose_recipe,
    )
    view = RunView(errors if as_json else console)
    if not (plain or config or resume):
        _say_recipe(view, chosen)
    cluster = _on_cluster(ray, view.say)
    with _watched(out) if watch else nullcontext(), cluster as backend:
        with options.resumable(out, "Completed rounds", "fedwatt run"), view.progress:
            observers = _observers(view, chosen, out, elsewhere=backend.train_elsewhere is not None)
            Run(chosen, backend, out=out, observer=observers, resume=resume).execute()
        show_results(out, baselines=chosen.baselines.enabled, as_json=as_json)


def _say_recipe(view: RunView, chosen: "RunConfig") -> None:
    """Print what the recipe of a run chose, and why."""
    from fedwatt.runs.config import to_tables
    from fedwatt.runs.defaults import choose_recipe

    for line in choose_recipe(to_tables(chosen)).sentences(chosen):
        view.say(line)


def _observers(
    view: "Observer", chosen: "RunConfig", out: "Path", *, elsewhere: bool
) -> "Observer":
    """Return the observers of a run: the terminal, its report, then trackers, which may log it."""
    from fedwatt.report.write import Reporter
    from fedwatt.runs.observers import Observers
    from fedwatt.runs.trackers import Replayed, trackers

    followers = trackers(chosen, out)
    if elsewhere:
        followers = [*map(Replayed, followers)]
    return Observers((view, Reporter(), *followers))


@contextmanager
def _watched(out: "Path") -> "Iterator[None]":
    """Serve the live page of a run; on a terminal it stays afterwards, until Ctrl-C."""
    from fedwatt.report.live import serving

    with serving(out, port=0) as address:
        console.print(f"Watch it at {address}")
        yield
        if console.is_terminal:
            console.print(f"The page stays at {address} until you press Ctrl-C.")
            wait_for_interrupt()
        else:
            console.print(f"The page has ended with the run; 'fedwatt watch {out}' shows it again.")


@contextmanager
def _on_cluster(ray: str | None, say: "Callable[[str], None]") -> "Iterator[Simulation]":
    """Yield the backend of a run: this process, or the Ray cluster at the address."""
    from fedwatt.runs.simulation import Simulation

    if ray is None:
        yield Simulation()
        return
    from fedwatt.tuning.grid import connected

    with connected(ray):
        yield Simulation(train_elsewhere=_in_tasks(ray, say))


def _in_tasks(ray: str, say: "Callable[[str], None]") -> "Callable[[RunConfig, Path, Fleet], None]":
    """Return a function that trains a run's methods on a Ray cluster, a line for each finished
    task.
    """
    from fedwatt.tuning.tasks import train_in_tasks

    def train(config: "RunConfig", folder: "Path", fleet: "Fleet") -> None:
        def done(name: str, finished: int, of: int) -> None:
            say(f"{name}: trained ({finished} of {of} tasks)")

        train_in_tasks(config, folder, fleet, ray=ray, on_done=done)

    return train
