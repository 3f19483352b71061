"""Flower's SuperLink behind our own door (`door`).

    python -m fedwatt.deploy.superlink ...     takes all options of flower-superlink

Flower 1.41 serves vehicles (/v1/fleet), operators (/v1/control) and its own processes (/v1/runtime)
on one port and asks operators for no password, so whoever reaches the port could start a run, that
is, execute code on the server. Here only vehicles may come from elsewhere, and not with more bytes
than they were asked for.
"""

from starlette.middleware import Middleware

from fedwatt.deploy.door import Door
from fedwatt.deploy.flower import start_superlink

if __name__ == "__main__":
    start_superlink(Middleware(Door))
