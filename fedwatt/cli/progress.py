"""Progress of a run: a live view in a terminal, plain lines elsewhere."""

import time
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import progress as bars
from rich.console import Console

from fedwatt.cli.console import console, print_json, print_table, records
from fedwatt.errors import counted
from fedwatt.runs.observers import Observer

if TYPE_CHECKING:
    from fedwatt.elevation.learn import Learned
    from fedwatt.elevation.settings import ElevationSettings
    from fedwatt.federation import History, RoundRecord, State
    from fedwatt.windows import Fleet

LARGE_FLEET = 500
"""Fleets of this many vehicles take long enough to build that their progress is shown."""


def method_bars(console: Console, *texts: str) -> bars.Progress:
    """Return a bar for each method with columns of `texts`; without a terminal none is drawn."""
    name = bars.TextColumn("{task.description}", style="bold", markup=False)
    columns = (name, bars.BarColumn(None), bars.MofNCompleteColumn(), *map(bars.TextColumn, texts))
    left = bars.TimeRemainingColumn()
    hidden = not console.is_terminal
    return bars.Progress(*columns, left, console=console, expand=True, disable=hidden)


class RunView(Observer):
    """A bar for each method where there is a terminal, about ten lines a method elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.rounds = 1
        self.begun_at = time.monotonic()
        self.begun_with = 0
        self.unit = ""
        drift = "drift {task.fields[drift]}{task.fields[epsilon]}"
        speed = "{task.fields[speed]}"
        self.progress = method_bars(console, "RMSE {task.fields[rmse]}", drift, speed)
        self.task = bars.TaskID(0)

    def on_elevation(self, learned: "Learned", elevation: "ElevationSettings") -> None:
        """Print one line about the elevation map."""
        self.say(describe_elevation(learned, elevation))

    def on_vehicle(self, built: int, of: int) -> None:
        """Print a line for every tenth of a large fleet."""
        if of >= LARGE_FLEET and built % (of // 10) == 0:
            self.say(f"building the fleet: {built:,} of {of:,} vehicles")

    def on_fleet(self, fleet: "Fleet") -> None:
        """Show a line about the fleet, and one about the target unless it is energy."""
        self.unit = fleet.settings.predicts.unit
        self.say(describe_fleet(fleet))
        if fleet.settings.predicts.name != "energy":
            self.say(describe_labels(fleet))

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Start a bar, or print one line about the method."""
        self.rounds = rounds
        self.begun_at = time.monotonic()
        self.begun_with = done
        self.task = self.progress.add_task(
            label, total=rounds, completed=done, rmse="…", drift="…", speed="", epsilon=""
        )
        if not self.console.is_terminal:
            doing = f"continuing after round {done} of" if done else "training"
            self.say(f"{label}: {doing} {counted(rounds, 'round')}")

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Move the bar, or print a line after every tenth of the rounds."""
        speed = (state.round - self.begun_with) / max(time.monotonic() - self.begun_at, 1e-9)
        rmse, drift = figures(record, self.unit)
        fields: dict[str, Any] = {"drift": drift, "speed": f"{speed:.1f} rounds/s"}
        fields |= {"epsilon": epsilon(record)} | ({"rmse": rmse} if rmse != "–" else {})
        self.progress.update(self.task, completed=state.round, **fields)
        at_tenth = state.round % max(1, self.rounds // 10) == 0 or state.round == self.rounds
        if at_tenth and not self.console.is_terminal:
            self.say(
                f"{label}: round {state.round}/{self.rounds}  RMSE {rmse}  drift {drift}  "
                f"{fields['speed']}  {(self.rounds - state.round) / speed:.0f} s left"
                f"{fields['epsilon']}"
            )

    def on_end(self, label: str, history: "History") -> None:
        """Print a line if seeds diverged."""
        for row in history.rounds:
            if row["diverged"]:
                when = f"diverged at round {row['round']}; left out of all averages"
                self.say(f"{label}, seed {row['seed']}: {when}")

    def on_baseline(self, name: str) -> None:
        """Print one line about a baseline."""
        from fedwatt.evaluation import REFERENCES

        self.say(f"baseline: {REFERENCES[name].title}")

    def say(self, text: str) -> None:
        """Print a plain line."""
        self.console.print(text, soft_wrap=True)


def figures(record: "RoundRecord", unit: str) -> tuple[str, str]:
    """Return (test RMSE, drift) of a round, means over the seeds that are still finite."""

    def mean(column: str) -> float:
        finite = [row[column] for row in record.rounds if isfinite(row[column])]
        return sum(finite) / len(finite) if finite else nan

    rmse = mean("test_rmse")
    margin = mean("test_rmse_margin")
    interval = f" ± {margin:.2g}" if margin > 0 else ""
    text = f"{rmse:.4g}{interval} {unit}" if isfinite(rmse) else "–"
    return text, f"{mean('drift_mean'):.3g}"


def epsilon(record: "RoundRecord") -> str:
    """Return the privacy spent so far; nothing for a method without."""
    spent = [row["epsilon"] for row in record.rounds if "epsilon" in row]
    return f"  ε {max(spent):.3g}" if spent else ""


def describe_fleet(fleet: "Fleet") -> str:
    """Return the fleet in one line."""
    here = fleet.at_hand
    simulated = sum(client.simulated for client in here)
    labels = "simulated" if simulated == len(here) else "measured"
    if 0 < simulated < len(here):
        labels = f"{simulated} of {len(here)} simulated"
    splits = ("train", "validation", "test")
    counts = ", ".join(f"{fleet.windows(split):,} {split}" for split in splits)
    vehicles = counted(len(fleet.clients), "vehicle")
    if fleet.is_lazy:
        vehicles += " made on demand"
        counts = f"about {counts} (estimated from {len(here)} vehicles)"
    return f"{fleet.source}: {vehicles}, windows: {counts}; labels {labels}"


def describe_labels(fleet: "Fleet") -> str:
    """Return one line on the target and the resolution of its labels."""
    from fedwatt.report.load import Predicted, coarseness
    from fedwatt.runs.provenance import describe_target

    target = Predicted(**describe_target(fleet))
    coarse = f"; {coarseness(target)}" if target.grain else ""
    return f"a window predicts its {target.meaning}, in {target.unit}{coarse}"


def describe_elevation(learned: "Learned", elevation: "ElevationSettings") -> str:
    """Return one line on the published elevation map, or on why there is none."""
    vehicles = counted(len(learned.contributors), "vehicle")
    if learned.shared.nodes:
        return f"elevation map: {counted(learned.shared.nodes, 'node')} published, of {vehicles}"
    vehicle_maps = [learned.maps[name] for name in learned.contributors]
    if (
        elevation.private
        and vehicle_maps
        and not any(each.nodes or each.measured for each in vehicle_maps)
    ):
        return (
            "elevation map: none, so that roads count as level: no vehicle has positions "
            "(latitude_deg, longitude_deg) or elevation (elevation_m) from which its "
            "validation trips gain"
        )
    needed = counted(elevation.minimum_vehicles, "vehicle")
    left = "each vehicle has what it learns by itself"
    if not elevation.private:
        left = "with elevation.private = false no vehicle has a map"
    return (
        f"elevation map: nothing is published, because a node needs {needed} "
        f"(elevation.minimum_vehicles), and with {vehicles} none has as many; {left}"
    )


def show_results(run: Path, *, baselines: bool = False, as_json: bool = False) -> None:
    """Print the results of a finished run and the place of its report."""
    from fedwatt.report.tables import baseline_results, final_results

    headings, rows = final_results(run)
    title, baseline_headings, baseline_rows = baseline_results(run) if baselines else ("", [], [])
    report = run / "report.html"
    if as_json:
        results = records(headings, rows)
        gains = records(baseline_headings, baseline_rows)
        print_json({"results": results, "baselines": gains, "run": run, "report": report})
        return
    print_table("Test error, mean ± standard deviation over seeds", headings, rows)
    if baselines:
        print_table(title, baseline_headings, baseline_rows)
    console.print(f"Report: {report}")
