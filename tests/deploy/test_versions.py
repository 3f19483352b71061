"""A server serves vehicles of its own series and of the one before."""

import tomllib

import pytest

pytest.importorskip("flwr")

from fedwatt import __version__
from fedwatt.deploy import versions
from fedwatt.deploy.versions import known_settings, series, told_vehicles, version_fault
from fedwatt.methods.catalogue import METHODS
from fedwatt.runs.config import from_tables, from_toml, to_toml


@pytest.mark.parametrize(
    ("vehicle", "what"),
    [
        ("0.3.0", ""),
        ("0.3.7", ""),
        ("0.2.9", ""),
        ("0.1.9", "update the vehicle"),
        ("0.4.0", "update the server first"),
        ("1.0.0", "update the server first"),
        ("nonsense", "update the vehicle"),
    ],
)
def test_the_last_two_series_are_served(vehicle: str, what: str) -> None:
    fault = version_fault(vehicle, "0.3.0", "0.2")
    assert fault.endswith(what) if what else fault == ""


def test_this_server_serves_its_own_series() -> None:
    assert version_fault(__version__) == ""
    assert series(__version__) != versions.BEFORE


@pytest.mark.parametrize("name", METHODS)
def test_what_vehicles_are_told_reads_back_as_the_configuration(name: str) -> None:
    config = from_tables({"deploy": {"quorum": 3}, "method": [{"name": name}]})
    assert from_toml(told_vehicles(config)) == config


def test_settings_that_the_series_before_does_not_know_are_told_only_where_they_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = known_settings()
    known["training"].remove("patience")
    known["method"].remove("alpha")
    del known["track"]
    monkeypatch.setattr(versions, "_known_before", lambda: known)
    usual = from_tables({"method": [{"name": "fo-fedavg"}]})
    told = told_vehicles(usual)
    assert from_toml(told) == usual
    assert not any(word in told for word in ("patience", "alpha", "[track]"))
    assert to_toml(usual).count("patience") == 1
    other = from_tables(
        {"training": {"patience": 3}, "method": [{"name": "fo-fedavg", "alpha": 0.5}]}
    )
    told = told_vehicles(other)
    assert "patience = 3" in told and "alpha = 0.5" in told
    assert from_toml(told) == other


def test_the_file_of_known_settings_has_nothing_that_this_version_dropped() -> None:
    """A setting that is gone would be refused by this version's own vehicles."""
    now = known_settings()
    for section, names in versions._known_before().items():
        assert set(names) <= set(now[section]), section


def test_vehicles_of_the_series_before_can_read_a_usual_question() -> None:
    known = versions._known_before()
    told = tomllib.loads(told_vehicles(from_tables({"method": [{"name": "fo-ri-fedavg"}]})))
    for section, table in told.items():
        for name in table if isinstance(table, dict) else ():
            assert name in known[section], f"{section}.{name}"
