"""`fedwatt tune`: the same number of trials for every method, over documented ranges."""

from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import TaskID
from rich.table import Table

from fedwatt.cli import configure
from fedwatt.cli.console import console, errors
from fedwatt.cli.progress import method_bars

if TYPE_CHECKING:
    from fedwatt.studies.tune import Tuned


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
    resume: configure.Resume = False,
    out: configure.Out = None,
) -> None:
    """Tune methods on equal terms by their validation error and write best.toml."""
    from fedwatt.studies.tune import tune as tune_methods

    out = configure.folder_for(out, resume)
    chosen = configure.configuration(
        config,
        out,
        resume=resume,
        methods=method,
        options={
            ("training", "rounds"): rounds,
            ("fleet", "vehicles"): vehicles,
            ("fleet", "data"): data,
        },
        seeds=seeds,
        device=device,
        assignments=assignments,
    )
    view = _TrialView()
    try:
        with view.progress:
            found = tune_methods(
                chosen, out, trials=trials, on_trial=view.trial, resume=resume, ray=ray
            )
    except KeyboardInterrupt:
        command = f"fedwatt tune --resume --trials {trials}"
        errors.print(configure.how_to_go_on(out, "Finished trials", command))
        raise typer.Exit(130) from None
    console.print(_summary(found))
    console.print(f"Train with the chosen values: fedwatt run {out / 'best.toml'}")


class _TrialView:
    """A bar for each method where there is a terminal, a line for each trial elsewhere."""

    def __init__(self) -> None:
        self.progress = method_bars(console, "best {task.fields[best]}")
        self.tasks: dict[str, TaskID] = {}

    def trial(self, label: str, wanted: int, study: "Tuned") -> None:
        """Move the bar, or say what the trial came to."""
        done = len(study.trials)
        best = _wh(study.best.score) if done else "…"
        if label not in self.tasks:
            self.tasks[label] = self.progress.add_task(label, total=wanted, best=best)
        elif not console.is_terminal:
            last = _wh(study.trials[-1].score)
            console.print(f"{label}: trial {done}/{wanted}  {last}  best {best}", highlight=False)
        self.progress.update(self.tasks[label], completed=done, best=best)


def _wh(score: float) -> str:
    return f"{score:.2f} Wh" if isfinite(score) else "diverged"


def _summary(found: "list[Tuned]") -> Table:
    """The table of tuning.md in the width of a terminal."""
    from fedwatt.studies.tune import tuning_table

    made = tuning_table(found)
    table = Table(title=made.title, caption=made.note, caption_justify="left")
    for name in ("Method", "Hyperparameter", "Range", "Configured → chosen", "RMSE (Wh)"):
        table.add_column(name, overflow="fold")
    for method, _, name, own, first, best, before, after in made.text_rows():
        change = f"{before} → {after}" if method else ""
        table.add_row(method, name, own, f"{first} → {best}", change)
    return table
