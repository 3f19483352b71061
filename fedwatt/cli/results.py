"""`fedwatt report`, `watch` and `runs`: finished and running runs."""

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from fedwatt.cli.console import (
    Json,
    console,
    print_json,
    records,
    ruled_table,
    wait_for_interrupt,
)
from fedwatt.cli.options import Port
from fedwatt.errors import FedwattError, RunError, SettingError

Runs = Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN...")]


def report(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option(help="Write to this file or folder. [default: the run]"),
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write the figures as PDF as well.")] = False,
) -> None:
    """Write the report of a run, or of several runs side by side."""
    from fedwatt.report.write import write_report

    if len(runs) > 1 and out is None:
        raise SettingError("Several runs need --out, the folder for their common report.")
    console.print(f"Report: {write_report(*runs, out=out, pdf=pdf)}")


def watch(
    run: Annotated[Path, typer.Argument(help="Run folder; the run may begin later.")],
    port: Port = 8600,
    open: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve a live page of a run on this machine."""
    from fedwatt.report.live import serving

    with serving(run, port=port) as address:
        console.print(f"Watching {run} at {address} until Ctrl-C.")
        if open:
            typer.launch(address)
        wait_for_interrupt()
        console.print("No longer watching; the run continues.")


runs_app = typer.Typer(no_args_is_help=True)


@runs_app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder with run folders.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs in a folder with their data, methods and errors."""
    entries = [run_entry(path.parent) for path in sorted(folder.glob("*/config.toml"))]
    if as_json:
        print_json(entries)
        return
    if not entries:
        console.print(f"There is no run in {folder}. 'fedwatt run' makes one.")
        return
    headings = ("Run", "Begun", "Data", "Rounds", "Method: RMSE")
    rows = [
        (
            entry["run"],
            entry["begun"],
            entry["data"],
            str(entry["rounds"]),
            "; ".join(f"{name}: {rmse}" for name, rmse in entry["rmse"].items()) or entry["state"],
        )
        for entry in entries
    ]
    console.print(ruled_table("", headings, rows))


def run_entry(run: Path) -> dict[str, Any]:
    """Return a run's name, state, data, rounds and final errors."""
    from fedwatt.report.load import load_run
    from fedwatt.report.statistics import final_error
    from fedwatt.report.table import amount

    entry: dict[str, Any] = {"run": run.name, "state": "finished", "begun": "", "rmse": {}}
    try:
        settings = read_settings(run)
        entry |= {"data": settings["fleet.data"], "rounds": settings["training.rounds"]}
        if not (run / "environment.json").exists():
            return entry | {"state": "not finished"}
        loaded = load_run(run)
    except (FedwattError, KeyError) as error:
        return entry | {"state": f"unreadable: {error}", "data": "–", "rounds": "–"}
    started = str(loaded.origins[0].environment.get("started", ""))
    entry["begun"] = started[:16].replace("T", " ")
    for method in loaded.methods:
        entry["rmse"][method] = amount(loaded.target, final_error(loaded, method).mean)
    return entry


def read_settings(run: Path) -> dict[str, Any]:
    """Return a run's settings by key, such as training.rounds, without running code it names."""
    from fedwatt.runs.config import read_config, settings_by_key

    return settings_by_key(read_config(run / "config.toml"))


@runs_app.command("compare")
def compare_runs(runs: Runs, as_json: Json = False) -> None:
    """Compare the errors and settings of finished runs."""
    from fedwatt.report.tables import final_results

    if len(runs) < 2:
        raise SettingError("A comparison needs two or more run folders.")
    headings, rows = final_results(*runs)
    settings = [read_settings(run) for run in runs]
    keys = dict.fromkeys(key for of_run in settings for key in of_run)
    changes = {
        key: values
        for key in keys
        if len(set(map(repr, values := [of_run.get(key) for of_run in settings]))) > 1
    }
    if as_json:
        print_json({"errors": records(headings, rows), "settings": changes})
        return
    console.print(ruled_table("Test error of the model that vehicles use", headings, rows))
    names = [run.name for run in runs]
    lines = [[key, *map(str, values)] for key, values in changes.items()]
    console.print(ruled_table("Settings that differ", ["", *names], lines))


@runs_app.command("delete")
def delete_runs(
    runs: Runs,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Delete run folders after asking."""
    from fedwatt.files import holding

    for run in runs:
        if not (run / "config.toml").is_file():
            raise RunError(f"{run} holds no run, so it is not deleted.")
    for run in runs:
        if yes or typer.confirm(f"Delete {run} with its models and tables?"):
            with holding(run, "folder", f"A run is writing into {run}: stop it first."):
                shutil.rmtree(run)
            console.print(f"Deleted {run}.")
