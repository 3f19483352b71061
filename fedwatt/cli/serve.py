"""`fedwatt serve`: a model as a small HTTP service."""

from ipaddress import ip_address
from typing import Annotated

import typer

from fedwatt.cli.console import console
from fedwatt.cli.options import Host, ModelName, Port
from fedwatt.errors import SettingError


def serve(
    model: ModelName,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    token: Annotated[
        str,
        typer.Option(
            envvar="FEDWATT_TOKEN",
            help="Require 'Authorization: Bearer TOKEN' of requests.",
            show_envvar=True,
        ),
    ] = "",
    name: Annotated[
        list[str] | None,
        typer.Option(help="Answer to this further host name; repeatable."),
    ] = None,
) -> None:
    """Serve route and trip predictions over HTTP, in JSON."""
    if not _is_loopback(host) and len(token) < SHORTEST_TOKEN:
        raise SettingError(
            f"Other machines can reach {host}: give a --token of at least {SHORTEST_TOKEN} "
            "characters, or leave --host out."
        )
    from fedwatt.edge.handlers import Handlers
    from fedwatt.edge.service import application, listen

    app = application(Handlers.of(model), names=(host, *(name or ())), token=token)
    console.print(f"Serving {model} at http://{host}:{port}/ (end with Ctrl-C)")
    listen(app, host, port)


SHORTEST_TOKEN = 16


def _is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    >>> _is_loopback("127.0.0.1"), _is_loopback("0.0.0.0"), _is_loopback("localhost")
    (True, False, True)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
