"""`fedwatt tune`: the same number of trials for every method, over documented ranges."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import TaskID
from rich.table import Table

from fedwatt.cli import configure
from fedwatt.cli.console import console
from fedwatt.cli.progress import method_bars

if TYPE_CHECKING:
    from fedwatt.tuning.tune import Tuned
    from fedwatt.windows.targets import Target


def tune(
    config: configure.Config = None,
    trials: Annotated[int, typer.Option(help="Trials of each method.", min=1)] = 20,
    method: configure.Methods = None,
    data: configure.Data = None,
    rounds: configure.Rounds = None,
    vehicles: configure.Vehicles = None,
    seeds: configure.Seeds = None,
    device: configure.Device = None,
    assignments: configure.Assignments = None,
    ray: configure.Ray = None,
    trust: configure.Trust = None,
    resume: configure.Resume = False,
    out: configure.Out = None,
) -> None:
    """Tune methods on equal terms by their validation error and write best.toml."""
    from fedwatt.tuning.tune import tune as tune_methods

    out = configure.folder_for(out, resume)
    chosen = configure.configuration(
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
    view = _TrialView(target)
    command = f"fedwatt tune --trials {trials}"
    with configure.resumable(out, "Finished trials", command), view.progress:
        tuned = tune_methods(
            chosen, out, trials=trials, on_trial=view.trial, resume=resume, ray=ray
        )
    console.print(_summary(tuned, target))
    console.print(f"Train with the chosen values: fedwatt run {out / 'best.toml'}")


class _TrialView:
    """A bar for each method where there is a terminal, a line for each trial elsewhere."""

    def __init__(self, target: "Target") -> None:
        self.target = target
        self.unit = f" {target.unit}"
        self.progress = method_bars(console, "best {task.fields[best]}")
        self.tasks: dict[str, TaskID] = {}

    def trial(self, label: str, wanted: int, study: "Tuned") -> None:
        """Move the bar, or say what the trial came to."""
        from fedwatt.tuning.tune import shown_score

        done = len(study.trials)
        best = shown_score(study.best, self.target, self.unit) if done else "…"
        if label not in self.tasks:
            self.tasks[label] = self.progress.add_task(label, total=wanted, best=best)
        elif not console.is_terminal:
            last = shown_score(study.trials[-1], self.target, self.unit)
            console.print(f"{label}: trial {done}/{wanted}  {last}  best {best}")
        self.progress.update(self.tasks[label], completed=done, best=best)


def _summary(tuned: "list[Tuned]", target: "Target") -> Table:
    """Return the table of tuning.md in the width of a terminal."""
    from fedwatt.tuning.tune import tuning_table

    made = tuning_table(tuned, target)
    table = Table(title=made.title, caption=made.note, caption_justify="left")
    headings = ("Method", "Hyperparameter", "Range", "Configured → chosen", f"RMSE ({target.unit})")
    for name in headings:
        table.add_column(name, overflow="fold")
    for method, _, name, values, first, best, before, after in made.text_rows():
        change = f"{before} → {after}" if method else ""
        table.add_row(method, name, values, f"{first} → {best}", change)
    return table
