"""`fedwatt tune`: the same number of trials for every method, over documented ranges."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import TaskID
from rich.table import Table

from fedwatt.cli import options
from fedwatt.cli.console import Json, console, errors, print_json, records, ruled_table
from fedwatt.cli.progress import method_bars

if TYPE_CHECKING:
    from fedwatt.report.table import ReportTable as TuningTable
    from fedwatt.tuning.tune import Tuned
    from fedwatt.windows.targets import Target


def tune(
    config: options.Config = None,
    trials: Annotated[int, typer.Option(help="Set the trials of each method.", min=1)] = 20,
    method: options.Methods = None,
    data: options.Data = None,
    rounds: options.Rounds = None,
    vehicles: options.Vehicles = None,
    seeds: options.Seeds = None,
    device: options.Device = None,
    assignments: options.Assignments = None,
    ray: options.Ray = None,
    trust: options.Trust = None,
    resume: options.Resume = False,
    out: options.RunOut = None,
    as_json: Json = False,
) -> None:
    """Tune methods on equal terms by their validation error."""
    from fedwatt.tuning.tune import tune as tune_methods
    from fedwatt.tuning.tune import tuning_table

    out = options.folder_for(out, resume)
    chosen = options.configuration(
        config,
        out,
        resume=resume,
        methods=method,
        options={
            "training.rounds": rounds,
            "fleet.vehicles": vehicles,
            "fleet.data": data,
            "device": device,
        },
        seeds=seeds,
        assignments=assignments,
    )
    target = chosen.data.predicts
    view = _TrialView(target, errors if as_json else console)
    command = f"fedwatt tune --trials {trials}"
    with options.resumable(out, "Finished trials", command), view.progress:
        tuned = tune_methods(
            chosen, out, trials=trials, on_trial=view.trial, resume=resume, ray=ray
        )
    table = tuning_table(tuned, target)
    if as_json:
        headings = [column.heading for column in table.columns]
        rows = records(headings, table.text_rows())
        print_json({"trials": rows, "best": out / "best.toml"})
        return
    console.print(_summary(table, target))
    console.print(f"Train with the chosen values: fedwatt run {out / 'best.toml'}")


class _TrialView:
    """A bar for each method where there is a terminal, a line for each trial elsewhere."""

    def __init__(self, target: "Target", screen: Console) -> None:
        self.target = target
        self.screen = screen
        self.unit = f" {target.unit}"
        self.progress = method_bars(screen, "best {task.fields[best]}")
        self.tasks: dict[str, TaskID] = {}

    def trial(self, label: str, trials: int, study: "Tuned") -> None:
        """Move the bar, or print the trial's score."""
        from fedwatt.tuning.tune import shown_score

        done = len(study.trials)
        best = shown_score(study.best, self.target, self.unit) if done else "…"
        if label not in self.tasks:
            self.tasks[label] = self.progress.add_task(label, total=trials, best=best)
        elif not self.screen.is_terminal:
            last = shown_score(study.trials[-1], self.target, self.unit)
            self.screen.print(f"{label}: trial {done}/{trials}  {last}  best {best}")
        self.progress.update(self.tasks[label], completed=done, best=best)


def _summary(table: "TuningTable", target: "Target") -> Table:
    """Return the table of tuning.md in the width of a terminal."""
    headings = ("Method", "Hyperparameter", "Range", "Configured → chosen", f"RMSE ({target.unit})")
    rows = []
    for method, _, name, values, first, best, before, after in table.text_rows():
        change = f"{before} → {after}" if method else ""
        rows.append((method, name, values, f"{first} → {best}", change))
    summary = ruled_table(table.title, headings, rows)
    summary.caption = table.note
    summary.caption_justify = "left"
    return summary
