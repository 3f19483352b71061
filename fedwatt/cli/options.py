"""Options that commands share, and the configuration that they make together."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedwatt import plugins
from fedwatt.cli.console import errors
from fedwatt.cli.data.shared import OUT_HELP, refuse_filled
from fedwatt.errors import RunError, SettingError

if TYPE_CHECKING:
    from fedwatt.runs.config import RunConfig
    from fedwatt.runs.defaults import RunRecipe

METHOD_HELP = "Choose a method; 'fedwatt list' shows all."
SEEDS_HELP = "Set the seeds, trained together, such as 1,2,3."

Port = Annotated[int, typer.Option("--port", help="Listen on this port.", min=0)]
Host = Annotated[str, typer.Option("--host", help="Listen on this address.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write a page to this file.")]
VehicleFolder = Annotated[
    Path | None,
    typer.Option("--vehicle", help="Use the vehicle in this folder of a fleet."),
]
ModelName = Annotated[
    str, typer.Argument(help="Model file, or a pre-trained model such as leaf-24.")
]
Config = Annotated[
    Path | None,
    typer.Argument(help="TOML file with settings.", metavar="[CONFIG]"),
]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help=f"{METHOD_HELP} [default: the recommended]", metavar="NAME"),
]
Method = Annotated[
    str | None,
    typer.Option("--method", help=f"{METHOD_HELP} [default: the run's first]", metavar="NAME"),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Use the fleet in this folder. [default: the built-in fleet]",
        metavar="FLEET",
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        metavar="N",
        help="Set the number of rounds. [default: 40; 30 for 'run' without --data]",
    ),
]
Vehicles = Annotated[
    int | None,
    typer.Option("--vehicles", metavar="N", help="Set the number of vehicles. [default: all]"),
]
Seeds = Annotated[
    str | None, typer.Option("--seeds", help=f"{SEEDS_HELP} [default: 1,2,3]", metavar="LIST")
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        metavar="X",
        help="Set the learning rate of all methods. [default: their own]",
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="Choose auto, cpu or cuda. [default: auto]"),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set any setting, such as training.batch=32."),
]


def _trust(names: list[str] | None) -> list[str] | None:
    """Let files that this command reads name the code `names`, which is then run."""
    plugins.trust(*names or [])
    return names


Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="CODE",
        callback=_trust,
        help="Trust this code if a file names it, such as ./sam.py:sam.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the stopped work in the folder --out.")
]
Ray = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="Use a Ray cluster: auto, HOST:PORT or local."),
]
RunOut = Annotated[
    Path | None, typer.Option("--out", help=f"{OUT_HELP} [default: a new folder below runs/]")
]


def folder_for(out: Path | None, resume: bool) -> Path:
    """Return the folder asked for, or a new one below runs/ named after the time."""
    if out is not None:
        refuse_folder(out, resume)
        return out
    if resume:
        raise SettingError("--resume needs --out: say which folder to continue.")
    started = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    names = chain([started], (f"{started}-{number}" for number in count(2)))
    return next(Path("runs", name) for name in names if not Path("runs", name).exists())


def refuse_folder(out: Path, resume: bool, allowed: Collection[str] = ()) -> None:
    """Raise if there is nothing in `out` to `resume`, or something that is no run.

    `allowed` are names that the command itself may have left there. A run that is there and is not
    to be resumed is for `refuse_other_run`, which knows both configurations.
    """
    if out.exists() and not out.is_dir():
        raise SettingError(f"{out} is a file, and --out names a folder. Choose another --out.")
    if holds_run(out):
        return
    if resume:
        raise RunError(
            f"{out} holds no run, so there is nothing to continue. Without --resume a new run "
            "begins, in a folder that is new or empty."
        )
    if not out.is_dir() or any(path.name not in allowed for path in out.iterdir()):
        refuse_filled(out)


def holds_run(out: Path) -> bool:
    """Return whether a run or a study was begun in `out`."""
    return (out / "config.toml").exists()


@contextmanager
def resumable(out: Path, parts: str, command: str) -> Iterator[None]:
    """Let Ctrl-C end a command that fills `out`, and print how to continue after `parts`."""
    try:
        yield
    except KeyboardInterrupt:
        message = "Stopped before anything was begun; there is nothing to continue."
        if holds_run(out):
            message = f"Stopped. {parts} are kept; continue with: {command} --resume --out {out}"
        errors.print(message)
        raise typer.Exit(130) from None


def configuration(
    path: Path | None,
    out: Path,
    *,
    resume: bool,
    methods: Sequence[str] | None,
    options: Mapping[str, object],
    assignments: Sequence[str] | None,
    seeds: str | None = None,
    recipe: "Callable[[Mapping[str, Any]], RunRecipe] | None" = None,
) -> "RunConfig":
    """Return the settings of the file `path`, replaced by options that were given.

    Without a file, a command that resumes reads what the interrupted one left in `out`, and
    another adds the settings of a `recipe` that are not given. `options` are values of settings
    by their keys, such as training.rounds; None: not given.
    """
    from fedwatt.runs.config import from_tables, label_of, override, read_config
    from fedwatt.runs.provenance import changed_code, sentence

    if path is None and resume and holds_run(out):
        path = out / "config.toml"
    tables = read_config(path) if path is not None else {}
    for key, value in options.items():
        if value is not None:
            section, _, setting = key.rpartition(".")
            (tables.setdefault(section, {}) if section else tables)[setting] = value
    if methods:
        # Methods of the file keep their settings.
        method_tables = {label_of(table): table for table in tables.get("method", [])}
        tables["method"] = [
            method_tables.get(plugins.short(name), {"name": name}) for name in methods
        ]
    if seeds is not None:
        try:
            tables["seeds"] = [int(part) for part in seeds.split(",")]
        except ValueError:
            hint = f"'{seeds}' is not a list of whole numbers such as 1,2,3."
            raise typer.BadParameter(hint) from None
    words = [*(methods or ()), *(a.partition("=")[2] for a in assignments or () if _names_code(a))]
    plugins.trust(*(word for word in words if ":" in word))
    tables = override(tables, assignments or [])
    if recipe is not None and path is None:
        tables = recipe(tables).applied(tables)
    chosen = from_tables(tables, str(path or "The command line"))
    # A run that goes on must be the same; `refuse_other_run` sees to that.
    if not resume and (changed := changed_code(tables.get("plugins", {}), chosen.plugins)):
        errors.print(sentence(changed, f"{path} was written"), "This run uses it as it is now.")
    return chosen


def _names_code(assignment: str) -> bool:
    """Return whether an assignment sets a name that may lead to code.

    >>> _names_code("model.name=./net.py:Net"), _names_code("deploy.address=10.0.0.1:9092")
    (True, False)
    """
    return assignment.partition("=")[0].rpartition(".")[2].strip() in ("name", "target", "features")
