"""Federated learning of electric-vehicle energy models.

The names below are the ones most programs need; everything else lives in the packages they come
from. They are loaded on first use, so that `import fedwatt` is quick and a vehicle's computer never
loads what it does not use.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# A thread of GNU OpenMP that waits spins for some milliseconds, which makes training many times
# slower where other programs want the cores, too. A hundredth of that is as fast on a quiet machine
# and hardly slower on a busy one. Read once, when torch is loaded; the user's own value is kept.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

if TYPE_CHECKING:
    from fedwatt import methods
    from fedwatt.edge.adapt import adapt
    from fedwatt.federation import Availability, Training
    from fedwatt.methods import Method
    from fedwatt.models import Model
    from fedwatt.report.write import write_report
    from fedwatt.runs.observers import Observer
    from fedwatt.runs.run import Run
    from fedwatt.runs.trained import Trained, load
    from fedwatt.synthetic import synthetic_fleet
    from fedwatt.telemetry.importing import fleet_from_frame
    from fedwatt.telemetry.store import load_fleet
    from fedwatt.windows import DataSettings, Fleet

__version__ = "0.1.0"

_HOMES = {
    "Availability": "fedwatt.federation",
    "DataSettings": "fedwatt.windows",
    "Fleet": "fedwatt.windows",
    "Method": "fedwatt.methods",
    "Model": "fedwatt.models",
    "Observer": "fedwatt.runs.observers",
    "Run": "fedwatt.runs.run",
    "Trained": "fedwatt.runs.trained",
    "Training": "fedwatt.federation",
    "adapt": "fedwatt.edge.adapt",
    "fleet_from_frame": "fedwatt.telemetry.importing",
    "load": "fedwatt.runs.trained",
    "load_fleet": "fedwatt.telemetry.store",
    "methods": "fedwatt.methods",
    "synthetic_fleet": "fedwatt.synthetic",
    "write_report": "fedwatt.report.write",
}

__all__ = [
    "Availability",
    "DataSettings",
    "Fleet",
    "Method",
    "Model",
    "Observer",
    "Run",
    "Trained",
    "Training",
    "adapt",
    "fleet_from_frame",
    "load",
    "load_fleet",
    "methods",
    "synthetic_fleet",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedwatt' has no attribute '{name}'")
    try:
        home = import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        from fedwatt.errors import needs_extra

        if sentence := needs_extra(error):
            raise ModuleNotFoundError(sentence, name=error.name) from error
        raise
    return home if name == "methods" else getattr(home, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
