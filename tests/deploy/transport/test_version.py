"""The fast path is on with known versions of Flower only; everything works without it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedwatt.deploy.transport as version
from fedwatt.deploy.transport import SWITCH, fast_path_is_on
from tests.deploy.transport.conftest import superlink, vehicles


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    fast_path_is_on.cache_clear()
    yield
    fast_path_is_on.cache_clear()


@pytest.mark.parametrize(
    ("installed", "on"),
    [("1.41.0", True), ("1.42.0", True), ("1.43.0", False), ("1.41.0.dev1", False), ("2", False)],
)
def test_known_versions(
    installed: str, on: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr(version, "version", lambda name: installed)
    logging.getLogger("fedwatt.deploy").propagate = True
    assert [fast_path_is_on(), fast_path_is_on()] == [on, on]
    message = [line for line in caplog.messages if "the fast path is off" in line]
    assert len(message) == (0 if on else 1)


def test_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    assert not fast_path_is_on()


@pytest.mark.parametrize(("at_server", "in_vehicles"), [("0", True), ("1", False)])
def test_only_one_end_has_it(
    at_server: str, in_vehicles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1" if in_vehicles else "0")
    with (
        superlink(tmp_path, **{SWITCH: at_server}) as server,
        vehicles(server, ["car-1", "car-2"], lambda name, body: body + name.encode()),
    ):
        answer = server.run(vehicles=2, rounds=2, size=20, largest=1000)
    assert answer["channel"] == ("FastChannel" if at_server == "1" else "PublicChannel")
    for round in answer["rounds"]:
        assert {name: reply[0] for name, reply in round["replies"].items()} == {
            "car-1": 27,
            "car-2": 27,
        }
