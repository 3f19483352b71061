"""A fleet's numbers in the text format that Prometheus scrapes.

https://prometheus.io/docs/instrumenting/exposition_formats/ (version 0.0.4). No label names a
vehicle: a series for each of ten thousand vehicles would cost the database more than it tells; the
page has them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from fedwatt.deploy.operate.fleet_view import FleetView
from fedwatt.deploy.operate.standing import STATES
from fedwatt.deploy.server.events import REPLIES
from fedwatt.deploy.server.run_state import RUNNING

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float | int | None]
"""Labels and a value; None: unknown, and left out."""


def exposition(view: FleetView) -> str:
    """Return all metrics of a fleet."""
    with view.lock:
        view.refresh()
        lines = [line for family in _families(view) for line in family]
    return "\n".join(lines) + "\n"


def _families(view: FleetView) -> Iterator[Iterable[str]]:
    run = view.run
    server = view.server
    methods = view.methods()
    states = view.states()
    doing = run.state
    outcomes = list(run.in_round.values())
    running = None if doing is None else int(doing.doing.startswith(RUNNING))
    yield _family("run_running", "Whether the run goes on now.", [({}, running)])
    up = None if server is None else int(not server.trouble)
    yield _family("server_up", "Whether the fleet's server answers.", [({}, up)])
    yield _family("vehicles_enrolled", "Vehicles of the run.", [({}, len(run.members))])
    yield _family("vehicles_online", "Vehicles that are connected.", [({}, view.online())])
    yield _family(
        "vehicles",
        "Vehicles by their state.",
        [({"state": state}, states.get(state, 0)) for state in STATES],
    )
    yield _family(
        "questions_total",
        "Requests to vehicles by outcome.",
        [({"outcome": event}, run.outcomes[event]) for event in REPLIES],
        "counter",
    )
    yield _family(
        "round_vehicles",
        "Vehicles that the latest round asked, by outcome.",
        [({"outcome": event}, outcomes.count(event)) for event in REPLIES],
    )
    for name, meaning, column in (
        ("rounds_done", "Rounds that a method has completed.", "round"),
        ("rounds_planned", "Rounds that a method is to have.", "of"),
        ("round_seconds", "How long the last round took.", "seconds"),
        ("test_rmse", "Test error of the last round's model, in the unit of its target.", "rmse"),
        ("epsilon", "Privacy that a private method has spent.", "epsilon"),
    ):
        yield _family(name, meaning, [({"method": m["method"]}, m[column]) for m in methods])
    yield _family(
        "last_model_timestamp_seconds", "When a round was last completed.", [({}, run.last_model())]
    )
    yield _family("disk_free_bytes", "Free disk where the run is.", [({}, view.disk_free())])
    yield _family(
        "certificate_expiry_timestamp_seconds",
        "When a certificate of the key store ends.",
        [({"certificate": n}, at) for n, at in (server.certificates() if server else {}).items()],
    )


def _family(
    name: str, meaning: str, samples: Iterable[Sample], kind: str = "gauge"
) -> Iterator[str]:
    """Yield the lines of one metric; none where all its values are unknown."""
    present = [(labels, value) for labels, value in samples if value is not None]
    if present:
        yield f"# HELP fedwatt_{name} {meaning}"
        yield f"# TYPE fedwatt_{name} {kind}"
    for labels, value in present:
        yield f"fedwatt_{name}{_labels(labels)} {value!r}"


def _labels(labels: Mapping[str, str]) -> str:
    """Return labels in braces.

    >>> _labels({"method": "fedavg", "le": "0.1"})
    '{method="fedavg",le="0.1"}'
    """
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
