"""The ServerApp that Flower starts for a run: our own loop on its Grid."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid.http_grid import HttpGrid

from fedwatt.deploy.execute import execute
from fedwatt.deploy.progress import LogLines, log, show_log
from fedwatt.deploy.pulling import PromptGrid
from fedwatt.report import write_report
from fedwatt.runs.config import from_toml

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the configuration of the run into its folder on this machine, then write the report."""
    show_log()
    settings = context.run_config
    out = Path(str(settings["out"]))
    config = from_toml(str(settings["config"]))
    prompt = PromptGrid(grid) if isinstance(grid, HttpGrid) else grid
    execute(config, out, prompt, LogLines(), resume=bool(settings["resume"]))
    log.info("report: %s", write_report(out))
