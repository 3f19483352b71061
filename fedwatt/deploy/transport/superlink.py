"""Flower's SuperLink behind our own door (`door`), with a short way to its answers (`shortcut`).

    python -m fedwatt.deploy.transport.superlink ...     takes all options of flower-superlink

Flower 1.41 serves vehicles (/v1/fleet), operators (/v1/control) and its own processes (/v1/runtime)
on one port and asks operators for no password, so whoever reaches the port could start a run, that
is, execute code on the server. Here only vehicles may come from elsewhere, and not with more bytes
than they were asked for.

What makes it quick can be switched off, one by one, by naming it in FEDWATT_WITHOUT:

    shortcut       Flower's own layers answer every request
    index          a look for questions goes through those of all vehicles
    connections    idle connections end after five seconds
    waiting        a look for questions that finds none is answered at once
    whole          parts of messages are sent one by one
"""

import os
import resource

from starlette.middleware import Middleware

from fedwatt.deploy.transport import flower_server
from fedwatt.deploy.transport.door import Door
from fedwatt.deploy.transport.shortcut import Shortcut
from fedwatt.errors import SettingError, unknown

WITHOUT = "FEDWATT_WITHOUT"
PARTS = ("shortcut", "index", "connections", "waiting", "whole")


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


def start(without: frozenset[str]) -> None:
    """Run the SuperLink without these parts."""
    open_files()
    if "index" not in without:
        flower_server.questions_by_node()
    if "connections" not in without:
        flower_server.keep_connections()
    holds = not without & {"waiting", "index"}  # the index tells when there is a question
    whole = not without & {"whole", "shortcut"}  # Flower's own layers know nothing of it
    short = () if "shortcut" in without else (Middleware(Shortcut, holds=holds, whole=whole),)
    flower_server.start_superlink(Middleware(Door, whole=whole), *short)


if __name__ == "__main__":
    start(parts(os.environ.get(WITHOUT, "")))
