"""Training on real fleets: signed plans, vehicles, a server, and Flower between them."""

import logging

from fedwatt.errors import RunError

log = logging.getLogger("fedwatt.deploy")


def need_flower() -> None:
    """Raise unless Flower is installed."""
    try:
        import flwr  # noqa: F401
    except ImportError as error:
        raise RunError("Deployment needs Flower: pip install 'fedwatt[deploy]'.") from error


def show_log(logger: logging.Logger = log, line: str = "%(asctime)s %(message)s") -> None:
    """Write a log of fedwatt's, and nobody else's, to the error stream."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(line, "%H:%M:%S"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
