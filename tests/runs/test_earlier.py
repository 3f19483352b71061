"""Configurations that the series before can read, and runs that go on after an update."""

import tomllib

import pytest

from fedwatt.methods.catalogue import METHODS
from fedwatt.runs import earlier
from fedwatt.runs.config import from_tables, from_toml, to_toml
from fedwatt.runs.earlier import earlier_toml, known_settings
from fedwatt.runs.folder import run_hash


@pytest.mark.parametrize("name", METHODS)
def test_what_vehicles_are_told_reads_back_as_the_configuration(name: str) -> None:
    config = from_tables({"deploy": {"quorum": 3}, "method": [{"name": name}]})
    assert from_toml(earlier_toml(config)) == config


def test_settings_that_the_series_before_does_not_know_are_told_only_where_they_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = known_settings()
    known["training"].remove("patience")
    known["method"].remove("alpha")
    del known["track"]
    monkeypatch.setattr(earlier, "settings_before", lambda: known)
    usual = from_tables({"method": [{"name": "fo-fedavg"}]})
    told = earlier_toml(usual)
    assert from_toml(told) == usual
    assert not any(word in told for word in ("patience", "alpha", "[track]"))
    assert to_toml(usual).count("patience") == 1
    other = from_tables(
        {"training": {"patience": 3}, "method": [{"name": "fo-fedavg", "alpha": 0.5}]}
    )
    told = earlier_toml(other)
    assert "patience = 3" in told and "alpha = 0.5" in told
    assert from_toml(told) == other


def test_the_file_of_known_settings_has_nothing_that_this_version_dropped() -> None:
    """A setting that is gone would be refused by this version's own vehicles."""
    now = known_settings()
    for section, names in earlier.settings_before().items():
        assert set(names) <= set(now[section]), section


def test_vehicles_of_the_series_before_can_read_a_usual_question() -> None:
    known = earlier.settings_before()
    told = tomllib.loads(earlier_toml(from_tables({"method": [{"name": "fo-ri-fedavg"}]})))
    for section, table in told.items():
        for name in table if isinstance(table, dict) else ():
            assert name in known[section], f"{section}.{name}"


def test_a_run_is_known_by_the_hash_that_the_version_before_gave_it() -> None:
    """Worked out by that version, of which this is the configuration."""
    config = from_tables({"seeds": [1], "method": [{"name": "fo-ri-fedavg"}]})
    assert run_hash(config) == "ab1aea45db6ff21f5d382f9321e55b6f"
