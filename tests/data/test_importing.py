"""What an import refuses before it reads anything."""

from pathlib import Path

import pytest

from fedwatt.data.importing import Maps, Recordings, import_fleet
from fedwatt.errors import SettingError

WEEK = Path("week.csv")


@pytest.mark.parametrize(
    ("recordings", "maps", "message"),
    [
        (Recordings(kind="sumo", paths=(WEEK,)), Maps(), "sumo needs two files"),
        (Recordings(kind="csv", paths=(WEEK,)), Maps(), "'fedwatt data map week.csv' proposes one"),
        (
            Recordings(kind="ved", paths=(WEEK,)),
            Maps(only_enriched=True),
            "--only-enriched needs --dem or --osm",
        ),
    ],
    ids=["sumo", "csv", "only enriched"],
)
def test_what_cannot_be_imported_is_refused(recordings, maps, message, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=message):
        import_fleet(tmp_path / "fleet", recordings, maps)
    assert not (tmp_path / "fleet").exists()
