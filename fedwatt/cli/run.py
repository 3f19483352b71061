"""`fedwatt run`: train methods on a fleet and write a run folder with its report."""

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedwatt.cli import configure
from fedwatt.cli.console import console, wait_for_interrupt
from fedwatt.cli.progress import RunView, show_results
from fedwatt.errors import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fedwatt.observers import Observer
    from fedwatt.runs.config import RunConfig
    from fedwatt.windows import Fleet

Participation = Annotated[
    float | None, typer.Option(help="Share of available vehicles that train in a round, C.")
]
Personalise = Annotated[
    bool | None,
    typer.Option(
        "--personalise/--no-personalise",
        help="Fine-tune the shared model in each vehicle. [default: on for the built-in fleet]",
        show_default=False,
    ),
]
Elevation = Annotated[
    bool | None,
    typer.Option(
        "--elevation/--no-elevation",
        help="Learn an elevation map from the fleet's energy. [default: on for the built-in fleet]",
        show_default=False,
    ),
]
Baselines = Annotated[
    bool,
    typer.Option(help="Also train baselines: local-only models, and one network on pooled data."),
]
Watch = Annotated[
    bool, typer.Option("--watch", help="Serve a page that shows the run; it stays until Ctrl-C.")
]
SeedsPerTask = Annotated[
    int, typer.Option(help="With --ray, seeds trained in one task; 0: all of a method.", min=0)
]


def run(
    config: configure.Config = None,
    method: configure.Methods = None,
    data: configure.Data = None,
    rounds: configure.Rounds = None,
    vehicles: configure.Vehicles = None,
    participation: Participation = None,
    seeds: configure.Seeds = None,
    device: configure.Device = None,
    assignments: configure.Assignments = None,
    elevation: Elevation = None,
    personalise: Personalise = None,
    baselines: Baselines = True,
    ray: configure.Ray = None,
    seeds_per_task: SeedsPerTask = 0,
    trust: configure.Trust = None,
    resume: configure.Resume = False,
    out: configure.Out = None,
    watch: Watch = False,
) -> None:
    """Train one or several methods on a fleet and write a run folder with a report."""
    from fedwatt.runs import execute
    from fedwatt.runs.defaults import WITH_ELEVATION, with_recipe
    from fedwatt.windows import DataSettings

    out = configure.folder_for(out, resume)
    features = None
    if elevation is not None:
        features = WITH_ELEVATION if elevation else DataSettings().features
    chosen = configure.configuration(
        config,
        out,
        resume=resume,
        methods=method,
        options={
            "training.rounds": rounds,
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
        recipe=with_recipe,
    )
    observer = RunView(console)
    cluster = _on_cluster(chosen, ray, seeds_per_task, out, observer.say)
    with _watched(out) if watch else nullcontext(), cluster as spread:
        with configure.resumable(out, "Completed rounds", "fedwatt run"), observer.progress:
            followed = _followed(observer, chosen, out, elsewhere="elsewhere" in spread)
            execute(chosen, out, followed, resume=resume, **spread)
        show_results(out, baselines=chosen.baselines.enabled)


def _followed(view: "Observer", chosen: "RunConfig", out: "Path", *, elsewhere: bool) -> "Observer":
    """Return the observers of a run: the terminal, its report, then trackers, which may log it."""
    from fedwatt.observers import Observers
    from fedwatt.report.write import Reporter
    from fedwatt.track import trackers
    from fedwatt.track.replayed import Replayed

    found = trackers(chosen, out)
    return Observers((view, Reporter(), *(map(Replayed, found) if elsewhere else found)))


@contextmanager
def _watched(out: "Path") -> "Iterator[None]":
    """Serve the live page of a run; on a terminal it stays afterwards, until Ctrl-C."""
    from fedwatt.watch.serve import serving

    with serving(out, port=0) as address:
        console.print(f"Watch it at {address}")
        yield
        if console.is_terminal:
            console.print(f"The page stays at {address} until you press Ctrl-C.")
            wait_for_interrupt()
        else:
            console.print(f"The page has ended with the run; 'fedwatt watch {out}' shows it again.")


@contextmanager
def _on_cluster(
    chosen: "RunConfig",
    ray: str | None,
    seeds_per_task: int,
    out: "Path",
    say: "Callable[[str], None]",
) -> "Iterator[dict[str, Any]]":
    """Yield the arguments of `execute` for training on the Ray cluster at the address.

    Whole methods train there, or every round's participants do where there are few methods and
    many participants.
    """
    if ray is None:
        yield {}
        return
    from fedwatt.runs.source import vehicle_maker
    from fedwatt.tuning.grid import connected
    from fedwatt.tuning.ray_workers import RayWorkers, cluster_size, deals_participants

    vehicles = vehicle_maker(chosen.fleet).count - chosen.data.held_out
    with connected(ray):
        if deals_participants(chosen, vehicles, cluster_size(chosen), seeds_per_task):
            workers = RayWorkers(chosen)
            say(f"every round's participants are dealt to {counted(workers.count, 'worker')}")
            yield {"dealt": workers.federation}
        else:
            yield {"elsewhere": _in_tasks(ray, seeds_per_task, out, say)}


def _in_tasks(
    ray: str, seeds_per_task: int, out: "Path", say: "Callable[[str], None]"
) -> "Callable[[RunConfig, Path, Fleet], None]":
    """Return a function that trains a run's methods on a Ray cluster, a line for each finished
    task.
    """
    from fedwatt.tuning.spread import train_in_tasks

    def train(config: "RunConfig", folder: "Path", fleet: "Fleet") -> None:
        def done(name: str, finished: int, of: int) -> None:
            say(f"{name}: trained ({finished} of {of} tasks)")

        train_in_tasks(config, folder, fleet, ray=ray, seeds_per_task=seeds_per_task, on_done=done)

    return train
