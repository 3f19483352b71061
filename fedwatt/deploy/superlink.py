"""Flower's SuperLink with its control door shut to the network.

    python -m fedwatt.deploy.superlink ...     takes all options of flower-superlink

Flower 1.41 serves vehicles (/v1/fleet), operators (/v1/control) and its own processes (/v1/runtime)
on one port and asks operators for no password, so whoever reaches the port could start a run, that
is, execute code on the server. Here only vehicles may come from elsewhere: anything but /v1/fleet
is answered to this machine alone.
"""

from ipaddress import ip_address

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from fedwatt.deploy.flower import start_superlink

FOR_VEHICLES = "/v1/fleet/"


class LocalControl:
    """Answers 403 to everybody who is elsewhere and is not a vehicle."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "lifespan" and not allowed(scope):
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"Only from the server itself."})
            return
        await self.app(scope, receive, send)


def allowed(scope: Scope) -> bool:
    """Whether a request may come from where it comes from."""
    if scope.get("path", "").startswith(FOR_VEHICLES):
        return True
    client = scope.get("client")
    try:
        return client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        return False


if __name__ == "__main__":
    start_superlink(Middleware(LocalControl))
