"""The ServerApp that Flower starts for a run: our own loop on its Grid."""

from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.superlink.grid import http_grid

from fedwatt.deploy.execute import execute
from fedwatt.deploy.node import SOON
from fedwatt.deploy.progress import LogLines, log, show_log
from fedwatt.report import write_report
from fedwatt.runs.config import from_toml

app = ServerApp()


def look_soon_again() -> None:
    """Let Flower's Grid ask again soon for parts of a reply that are still on their way.

    A reply is announced before its parts have arrived; Flower would then sleep for a second.
    """
    sooner = partial(pull_objects, initial_backoff=SOON, backoff_cap=1.0)
    vars(http_grid)["pull_objects"] = sooner


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the configuration of the run into its folder on this machine, then write the report."""
    show_log()
    look_soon_again()
    settings = context.run_config
    out = Path(str(settings["out"]))
    config = from_toml(str(settings["config"]))
    execute(config, out, grid, LogLines(), resume=bool(settings["resume"]))
    log.info("report: %s", write_report(out))
