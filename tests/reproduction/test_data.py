"""Sources of the data of a reproduction."""

from pathlib import Path

import pytest

from fedwatt.errors import DataError
from reproduction.data import find_sources, usual_folder


def test_data_folders_are_told_apart(tmp_path) -> None:
    from fedwatt.synthetic import synthetic_vehicles
    from fedwatt.telemetry.store import write_fleet

    write_fleet(tmp_path / "stored", synthetic_vehicles(1, trips=3), "made up")
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in ("EV_PHEV.parquet", "HEV_ICE_speed.parquet", "eVED_171101_week.csv"):
        (raw / name).touch()
    sources = find_sources([tmp_path / "stored", raw])
    assert set(sources.stored) == {"ved-electrified passenger"}
    assert set(sources.raw) == {"ved", "traces", "eved"}
    assert sources.has("ved") and sources.has("eved") and sources.has("synthetic")
    with pytest.raises(DataError, match="There is no data folder"):
        find_sources([Path("/no/such/folder")])


def test_data_is_looked_for_where_the_variable_says_only(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("FEDWATT_DATA", raising=False)
    assert usual_folder() is None
    monkeypatch.setenv("FEDWATT_DATA", str(tmp_path))
    assert usual_folder() is None
    (tmp_path / "ved").mkdir()
    (tmp_path / "ved" / "EV_PHEV.parquet").touch()
    assert usual_folder() == tmp_path
