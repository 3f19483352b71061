"""Everything fedwatt refuses, as one small tree.

FedwattError
├── SettingError   a hyperparameter or configuration value outside its range
├── DataError      telemetry, a fleet or a vehicle that cannot be used as it is
└── RunError       a run folder or checkpoint that cannot be read or written

The command line prints the message of a `FedwattError` as one sentence and exits with a non-zero
status; any other exception is a bug and keeps its traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class FedwattError(Exception):
    """An error that the user can correct; the message says what happened, where, and what to do."""


class SettingError(FedwattError, ValueError):
    """A value outside its range, or a name that does not exist."""


class DataError(FedwattError, ValueError):
    """Data that cannot be used as it is."""


class RunError(FedwattError):
    """A run folder that cannot be read, continued or written."""


def check(owner: object, name: str, holds: bool, allowed: str) -> None:
    """Refuse the attribute `name` of `owner` unless `holds`.

    `allowed` completes the sentence "<name> must be ..." and may add a hint after a full stop.
    """
    if not holds:
        value = getattr(owner, name)
        raise SettingError(f"{type(owner).__name__}({name}={value!r}): {name} must be {allowed}.")


def unknown(kind: str, name: str, valid: Iterable[str], hint: str = "") -> str:
    """Return the sentence for an unknown name, with the nearest known one.

    >>> unknown("method", "fedporx", ["fedavg", "fedprox"])
    "Unknown method 'fedporx'. Did you mean 'fedprox'? Known: fedavg, fedprox."
    """
    names = sorted(valid)
    near = get_close_matches(name, names, n=1)
    guess = f" Did you mean '{near[0]}'?" if near else ""
    return f"Unknown {kind} '{name}'.{guess} " + (hint or f"Known: {', '.join(names)}.")


def optional(module: str, otherwise: str, kind: type[FedwattError] = DataError) -> Any:
    """Return a module that an extra installs; the sentence `otherwise` says so where it is not
    there.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise kind(otherwise) from error


_EXTRAS = {"flwr": "deploy", "cryptography": "deploy"} | dict.fromkeys(
    ("torch", "scipy", "polars", "pyarrow", "safetensors", "tomli_w", "matplotlib", "jinja2"),
    "train",
)


def needs_extra(error: ModuleNotFoundError) -> str:
    """Return the sentence that names the extra of a missing package; "" for other packages.

    >>> needs_extra(ModuleNotFoundError("No module named 'torch'", name="torch"))
    "This needs torch, which is not installed: pip install 'fedwatt[train]'."
    """
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    return (
        f"This needs {package}, which is not installed: pip install 'fedwatt[{extra}]'."
        if extra
        else ""
    )


def counted(count: int, noun: str) -> str:
    """Return a number and what it counts.

    >>> counted(1, "round"), counted(2000, "round"), counted(3, "process")
    ('1 round', '2,000 rounds', '3 processes')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
