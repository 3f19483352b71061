"""`fedwatt watch`: a page that shows a run while it goes on."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.console import console, wait_for_interrupt

Run = Annotated[Path, typer.Argument(help="Folder of a run; it need not have started yet.")]
Port = Annotated[int, typer.Option(help="Port on this machine; 0: any that is free.", min=0)]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]


def watch(run: Run, port: Port = 8600, open: Open = False) -> None:
    """Serve a page on this machine that follows a run: curves, drift, vehicles, speed, time left.

    The run may be one of this machine or another's whose folder is visible here, a simulation or a
    real fleet's. Nothing is loaded from elsewhere, and nobody else can see the page.
    """
    from fedwatt.watch.serve import serving

    with serving(run, port=port) as address:
        console.print(f"Watching {run} at {address} until Ctrl-C.")
        if open:
            typer.launch(address)
        wait_for_interrupt()
        console.print("No longer watching; the run goes on.")
