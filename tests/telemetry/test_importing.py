"""What an import refuses before it reads anything."""

from pathlib import Path

import pytest

from fedwatt.errors import SettingError
from fedwatt.telemetry.importing import USUAL_CLEANING, Maps, Recordings, import_fleet


@pytest.mark.parametrize(
    ("kind", "message"),
    [("sumo", "sumo needs two files"), ("csv", "'fedwatt data map week.csv' proposes one")],
)
def test_what_cannot_be_imported_is_refused(kind: str, message: str, tmp_path: Path) -> None:
    cleaning = USUAL_CLEANING[kind]
    recordings = Recordings(kind=kind, paths=(Path("week.csv"),), cleaning=cleaning)
    with pytest.raises(SettingError, match=message):
        import_fleet(tmp_path / "fleet", recordings, Maps())
    assert not (tmp_path / "fleet").exists()


def test_only_enriched_trips_need_something_that_enriches() -> None:
    with pytest.raises(SettingError, match="--only-enriched needs --dem or --osm"):
        Maps(only_enriched=True)
    assert Maps(only_enriched=True, osm=Path("town.osm")).files == [Path("town.osm")]
