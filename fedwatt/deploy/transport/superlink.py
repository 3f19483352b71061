"""Flower's SuperLink behind a request filter (`door`), with a fast path (`shortcut`).

    python -m fedwatt.deploy.transport.superlink ...     takes all options of flower-superlink

Flower serves vehicles (/v1/fleet), operators (/v1/control) and its own processes (/v1/runtime) on
one port and asks operators for no password, so everything but /v1/fleet is for this machine only.

The fast path is on where Flower's version is known, and parts of it can be switched off by naming
them in FEDWATT_WITHOUT: "shortcut" (short answers), "waiting" (held polls), "whole" (one request
per message).
"""

import os
import resource
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

from starlette.middleware import Middleware

from fedwatt.deploy.transport.door import Door
from fedwatt.deploy.transport.flower import is_known
from fedwatt.errors import SettingError, unknown

WITHOUT = "FEDWATT_WITHOUT"
PARTS = ("shortcut", "waiting", "whole")
SERVER_KEEPS_SECONDS: Final = 75
"""How long the server keeps an idle connection; vehicles give it up before that."""
SHUTDOWN_SECONDS: Final = 2
"""For which a server that is stopped waits for requests, some of which are held polls."""


def parts(words: str) -> frozenset[str]:
    """The parts that are named, by spaces or commas; SettingError where there is none such."""
    named = words.replace(",", " ").split()
    for name in named:
        if name not in PARTS:
            raise SettingError(f"{WITHOUT}: {unknown('part', name, PARTS)}")
    return frozenset(named)


def open_files() -> None:
    """Let this process open as many files as it may: every vehicle's connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def start_superlink(*middleware: Any) -> None:
    """Run Flower's SuperLink, with `middleware` before all that it has itself."""
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink

    others = extensions.get_middleware
    extensions.get_middleware = lambda: (*middleware, *others())
    flower_superlink()


def keep_connections() -> None:
    """Let the SuperLink of this process keep idle connections for longer than vehicles do."""
    import uvicorn

    module = import_module("flwr.superlink.cli.flower_superlink")  # a function has the same name
    run = partial(
        uvicorn.run,
        timeout_keep_alive=SERVER_KEEPS_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    vars(module)["uvicorn"] = SimpleNamespace(run=run)


def start(without: frozenset[str]) -> None:
    """Run the SuperLink without these parts."""
    open_files()
    fast = is_known()
    short: tuple[Middleware, ...] = ()
    whole = fast and not without & {"whole", "shortcut"}
    if fast:
        keep_connections()
    if fast and "shortcut" not in without:
        # Only here: it is made of Flower's internals, which other versions may not have.
        from fedwatt.deploy.transport.shortcut import Shortcut

        short = (Middleware(Shortcut, holds="waiting" not in without, whole=whole),)
    start_superlink(Middleware(Door, whole=whole), *short)


if __name__ == "__main__":
    start(parts(os.environ.get(WITHOUT, "")))
