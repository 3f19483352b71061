"""The operator's page of a fleet with faults: what it knows, serves and shows in a browser."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from fedwatt.deploy.operate.dashboard import Dashboard
from fedwatt.deploy.operate.fleet_view import FleetView, RunFacts, ServerFacts, newest_run
from fedwatt.report.web_server import answering
from tests.deploy.operate.faulty import FAILS, GOOD, LATE, REFUSES, REVOKED, FaultyFleet
from tests.report.test_live import get, in_browser, looked_at

WHY = {
    FAILS: ("failing", "it could not compute a reply; its own log says why"),
    REFUSES: ("turned away", "its acceptance file refuses the plan: secure_aggregation"),
    LATE: ("late", "it did not reply within 0.3 s"),
    REVOKED: ("revoked", "its certificate was revoked"),
    GOOD: ("on time", ""),
}


STATES = ("revoked", "failing", "late", "turned away", "on time")


def view_of(faulty: FaultyFleet) -> FleetView:
    return FleetView(faulty.run, ServerFacts(faulty.flower, faulty.nodes))


@pytest.fixture(scope="module")
def page(faulty: FaultyFleet) -> Iterator[str]:
    view = view_of(faulty)
    with answering(Dashboard(view).answer, port=0) as address:
        yield address


def test_every_fault_is_known_with_its_reason(page: str) -> None:
    fleet = json.loads(get(f"{page}fleet.json"))
    rows = {row["vehicle"]: row for row in fleet["vehicles"]}
    assert rows.keys() == WHY.keys()
    for name, (state, reason) in WHY.items():
        assert rows[name]["state"] == state
        assert rows[name]["reason"].startswith(reason)
    assert [row["vehicle"] for row in fleet["vehicles"]] == [REVOKED, FAILS, LATE, REFUSES, GOOD]
    assert fleet["states"] == dict.fromkeys(STATES, 1)
    assert (fleet["enrolled"], fleet["online"], fleet["asked"]) == (4, 3, 4)
    assert fleet["replies"] == {"answered": 2, "failed": 1, "late": 1}
    assert fleet["versions"] == {"0.1.0": 4}
    assert [vehicle["round"] for vehicle in fleet["rounds"]] == [1, 2, 3]
    assert [(vehicle["replies"], vehicle["participants"]) for vehicle in fleet["rounds"]] == [
        (2, 4)
    ] * 3
    assert rows[GOOD]["success"]["round"] == 3
    assert (rows[FAILS]["success"], rows[LATE]["failing"]) == (None, 3)


def test_a_vehicle_can_be_looked_into(page: str) -> None:
    record = json.loads(get(f"{page}vehicle.json?name={quote(FAILS)}"))
    assert record["events"][-1] == record["events"][-1] | {"event": "enrolled", "version": "0.1.0"}
    assert [line["round"] for line in record["events"] if line["event"] == "failed"] == [3, 2, 1]
    for wrong in ("vehicle.json?name=nobody", "events.jsonl"):
        with pytest.raises(HTTPError, match="404"):
            get(f"{page}{wrong}")


def test_vehicles_are_found_by_state_and_name(page: str) -> None:
    late = json.loads(get(f"{page}fleet.json?state=late"))
    assert ([row["vehicle"] for row in late["vehicles"]], late["matching"]) == ([LATE], 1)
    named = json.loads(get(f"{page}fleet.json?find=CAR-003"))
    assert [row["vehicle"] for row in named["vehicles"]] == [REFUSES]


def test_nothing_of_a_vehicles_own_words_or_windows_is_served(page: str) -> None:
    served = "".join(get(f"{page}{path}") for path in ("fleet.json", f"vehicle.json?name={FAILS}"))
    assert "secret words" not in served
    assert "windows" not in served


def test_ready_means_that_the_server_answers(faulty: FaultyFleet) -> None:
    view = view_of(faulty)
    dashboard = Dashboard(view)
    with answering(dashboard.answer, port=0) as address:
        assert json.loads(get(f"{address}health/ready")) == {"ready": True, "why": ""}
        faulty.up = False
        view.next_look = float("-inf")
        try:
            with pytest.raises(HTTPError, match="503") as refused:
                urlopen(f"{address}health/ready")
            assert "No server answers" in refused.value.read().decode()
            assert json.loads(get(f"{address}health/live")) == {"live": True}
            assert json.loads(get(f"{address}fleet.json"))["online"] is None
        finally:
            faulty.up = True


SAMPLE = re.compile(
    r'([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)'
)


def parsed(text: str) -> dict[str, float]:
    """Samples by name and labels, with the rules of the format: help, then type, then samples."""
    assert text.endswith("\n")
    result: dict[str, float] = {}
    families: dict[str, str] = {}
    now = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            now = line.split(" ", 3)[2]
            assert now not in families
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == now and kind in ("counter", "gauge", "histogram")
            families[name] = kind
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            name, labels, value = sample.groups()
            suffixes = ("_bucket", "_sum", "_count") if families[now] == "histogram" else ("",)
            assert name in {now + suffix for suffix in suffixes}
            key = name if labels is None else f"{name}{{{labels}}}"
            assert key not in result
            result[key] = float(value)
    return result


def test_prometheus_scrapes(page: str) -> None:
    with urlopen(f"{page}metrics") as reply:
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        metrics = parsed(reply.read().decode())
    for state in STATES:
        assert metrics[f'fedwatt_vehicles{{state="{state}"}}'] == 1
    assert metrics["fedwatt_vehicles_online"] == 3
    assert metrics['fedwatt_rounds_done{method="fedavg"}'] == 3
    assert metrics['fedwatt_round_vehicles{outcome="failed"}'] == 1
    assert metrics['fedwatt_round_vehicles{outcome="answered"}'] == 2
    assert metrics["fedwatt_server_up"] == 1
    assert metrics["fedwatt_disk_free_bytes"] > 0
    year = metrics['fedwatt_certificate_expiry_timestamp_seconds{certificate="server"}']
    assert year < metrics['fedwatt_certificate_expiry_timestamp_seconds{certificate="owner"}']


@in_browser
def test_a_browser_shows_every_fault_and_its_reason(page: str, tmp_path: Path) -> None:
    seen = " ".join(looked_at(f"{page}#vehicle={FAILS}", tmp_path / "browser").split())
    for name, (state, reason) in WHY.items():
        assert re.search(rf"{name} {state}", seen), name
        assert reason in seen
    assert "it did not reply within 0.3 s (3 rounds in a row)" in seen
    assert (
        f"{FAILS} failing it could not compute a reply; its own log says why" in seen
    )  # looked into
    assert "The run: finished at" in seen


def test_the_newest_run_of_a_folder_is_shown_and_followed(
    faulty: FaultyFleet, tmp_path: Path
) -> None:
    assert newest_run(tmp_path) == tmp_path
    view = FleetView(tmp_path)
    assert view.summary()["doing"] == "The run has not begun."
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        for file in ("deployment.json", "events.jsonl"):
            (tmp_path / name / file).write_bytes((faulty.run / file).read_bytes())
    assert newest_run(tmp_path).name == "second"
    view.next_look = float("-inf")
    assert view.summary()["run"] == "second"
    assert view.summary()["asked"] == 4


def test_events_are_read_on_from_where_the_last_look_ended(
    faulty: FaultyFleet, tmp_path: Path
) -> None:
    complete = (faulty.run / "events.jsonl").read_bytes()
    facts = RunFacts(tmp_path)
    at_once = RunFacts(faulty.run)
    at_once.refresh()
    for end in (0, 100, len(complete) // 2, len(complete)):
        (tmp_path / "events.jsonl").write_bytes(complete[:end])
        facts.refresh()
    assert facts.standings == at_once.standings
    assert facts.in_round == at_once.in_round
    assert facts.vehicle_events(GOOD) == at_once.vehicle_events(GOOD)
