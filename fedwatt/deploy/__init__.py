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


class OneLineFormatter(logging.Formatter):
    """Escapes line breaks and control sequences, which others' names and words may hold."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        letters = (c if c.isprintable() else repr(c)[1:-1] for c in record.message)
        record.message = "".join(letters)
        return super().formatMessage(record)


def show_log() -> None:
    """Write the log of fedwatt, without other libraries', to the error stream."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
