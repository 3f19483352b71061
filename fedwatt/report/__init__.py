"""A run folder made readable: one page, figures and tables."""

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
