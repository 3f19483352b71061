"""Federated learning of electric-vehicle energy models.

The names below are the ones most programs need; everything else lives in the packages they come
from. They are loaded on first use, so that `import fedwatt` is quick and a vehicle's computer never
loads what it does not use.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Threads that wait by spinning make a busy machine many times slower, and help little on a quiet
# one. OpenMP reads this once, when torch is loaded; a value of the user's own is kept.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from fedwatt import methods
    from fedwatt.federation import Availability, Federation, Training
    from fedwatt.fleet import DataSettings, Fleet, synthetic_fleet
    from fedwatt.fleet.store import load_fleet
    from fedwatt.methods import Method
    from fedwatt.models import Model
    from fedwatt.report import write_report

__version__ = "0.1.0"

_HOMES = {
    "Availability": "fedwatt.federation",
    "DataSettings": "fedwatt.fleet",
    "Federation": "fedwatt.federation",
    "Fleet": "fedwatt.fleet",
    "Method": "fedwatt.methods",
    "Model": "fedwatt.models",
    "Training": "fedwatt.federation",
    "load_fleet": "fedwatt.fleet.store",
    "methods": "fedwatt.methods",
    "synthetic_fleet": "fedwatt.fleet",
    "write_report": "fedwatt.report",
}

__all__ = [
    "Availability",
    "DataSettings",
    "Federation",
    "Fleet",
    "Method",
    "Model",
    "Training",
    "load_fleet",
    "methods",
    "synthetic_fleet",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedwatt' has no attribute '{name}'")
    home = import_module(_HOMES[name])
    return home if name == "methods" else getattr(home, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
