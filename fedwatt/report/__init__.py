"""A run folder made readable: one page, figures and tables.

Names are loaded on first use: a page of a trip needs this package's style, and nothing of runs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedwatt.report.load import Run, load_run, load_runs
    from fedwatt.report.tables import final_results, reference_results
    from fedwatt.report.write import Reporter, write_report

__all__ = [
    "Reporter",
    "Run",
    "final_results",
    "load_run",
    "load_runs",
    "reference_results",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedwatt.report' has no attribute '{name}'")
    homes = {"final_results": "tables", "reference_results": "tables"}
    homes |= {"Reporter": "write", "write_report": "write"}
    return getattr(import_module(f"fedwatt.report.{homes.get(name, 'load')}"), name)
