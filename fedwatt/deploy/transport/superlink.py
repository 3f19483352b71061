"""Flower's SuperLink behind the request filter, with the fast path where it is on.

    python -m fedwatt.deploy.transport.superlink ...     takes all options of flower-superlink

The filter must be there on every version of Flower: without it, anybody who reaches the port could
start a run, that is, execute code on the server. Flower serves its application with `uvicorn.run`,
so that function, which is not Flower's, is given the application with the filter around it.
`serve_superlink` checks that the filter answers before it accepts vehicles.
"""

import gc
import os
import resource
import signal
import threading
import time
from typing import Any

import uvicorn

from fedwatt.deploy import show_log
from fedwatt.deploy.transport import fast_path_is_on
from fedwatt.deploy.transport.request_filter import RequestFilter

KEEP_SECONDS = 75
"""How long an idle connection is kept; vehicles close it before that."""
SHUTDOWN_SECONDS = 2
"""For requests in progress when the server is stopped: held polls would take longer."""


def open_files() -> None:
    """Let this process open as many files as it may: every vehicle's connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def collect_rarely() -> None:
    """Let the garbage collector leave out what a server has when it starts, and look rarely.

    Each request through Flower's middleware leaves cycles behind; with a thousand connections half
    of the server's time went into looking through all of its objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def end_with_parent() -> None:
    """End this process when the one that started it was killed; Flower's own end with this."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def start() -> None:
    """Run the SuperLink."""
    from flwr.superlink.cli.flower_superlink import flower_superlink

    run = uvicorn.run

    def filtered(app: Any, **options: Any) -> None:
        """Serve Flower's application behind the request filter."""
        fast = fast_path_is_on()
        if fast:
            from fedwatt.deploy.transport.fast_path import FastPath

            app = FastPath(app)
        settings = {
            "timeout_keep_alive": KEEP_SECONDS,
            "timeout_graceful_shutdown": SHUTDOWN_SECONDS,
            # Else a header could say that a request comes from this machine.
            "proxy_headers": False,
        }
        collect_rarely()
        run(RequestFilter(app, single=fast), **options | settings)

    uvicorn.run = filtered
    flower_superlink()


if __name__ == "__main__":
    show_log()
    open_files()
    end_with_parent()
    start()
