"""The ServerApp that Flower starts for a run: our own loop on its Grid."""

import logging
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedwatt.deploy.execute import execute
from fedwatt.deploy.progress import LogLines, log, show_log
from fedwatt.deploy.prompt_grid import PromptGrid, prompt
from fedwatt.errors import FedwattError
from fedwatt.observers import Observers
from fedwatt.report.write import Reporter
from fedwatt.runs.config import from_toml
from fedwatt.track import trackers

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the configuration of the run into its folder on this machine, then write the report."""
    show_log()
    settings = context.run_config
    out = Path(str(settings["out"]))
    config = from_toml(str(settings["config"]), trusted=True)
    own = prompt(grid)
    try:
        followed = Observers((LogLines(), Reporter(), *trackers(config, out)))
        execute(config, out, own, followed, resume=bool(settings["resume"]))
    except FedwattError as error:
        log.error("Error: %s", error)
        # That is all there is to say; Flower would add where in the code it happened.
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        raise
    finally:
        if isinstance(own, PromptGrid):
            own.expected.over()
    log.info("report: %s", out / "report.html")
