"""The ServerApp that Flower starts for a run: fedwatt's round loop on its Grid."""

import logging
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedwatt.deploy import log, show_log
from fedwatt.deploy.plan.store import KeyStore
from fedwatt.deploy.server.execute import LogLines, execute_plan
from fedwatt.deploy.transport.channel import channel
from fedwatt.errors import FedwattError
from fedwatt.report.write import Reporter
from fedwatt.runs.observers import Observers
from fedwatt.runs.trackers import trackers

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out the plan of a key store into a run folder on this machine, and write its report."""
    show_log()
    settings = context.run_config
    out = Path(str(settings["out"]))
    store = KeyStore(Path(str(settings["store"])))
    link = channel(grid)
    try:
        observers = Observers((LogLines(), Reporter(), *trackers(store.plan().config, out)))
        execute_plan(store, out, link, observers, resume=bool(settings["resume"]))
    except FedwattError as error:
        log.error("Error: %s", error)
        # Flower would add where in the code it happened.
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        raise
    finally:
        link.close()
    log.info("report: %s", out / "report.html")
