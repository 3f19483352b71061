"""Hills on board: a vehicle's part in learning them under masks, and the field that comes of it.

A vehicle is asked for counts and sums over nodes that everybody is asked about, and answers under
the masks of a secure sum; there is no question that it would answer in the clear. The published
field it is then sent is where its own hills begin: it learns ground that is not published by
itself, keeps what its validation trips bear out, and writes that to its own disk:

    STATE/memory/RUN/hills-DIGEST.parquet     its own hills, on top of the run's field
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from fedwatt.deploy.memory import forget_old_runs, mark, run_folder
from fedwatt.deploy.messages import Content, Value
from fedwatt.deploy.secure_board import Secrets
from fedwatt.elevation.encoding import field_digest, field_from_arrays
from fedwatt.elevation.field import Field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.ground import Ground
from fedwatt.elevation.settings import TerrainSettings
from fedwatt.elevation.store import read_field, write_field
from fedwatt.errors import DataError
from fedwatt.files import flush, oldest_first, write_atomically
from fedwatt.privacy.fixed_point import Layout
from fedwatt.runs.config import RunConfig
from fedwatt.telemetry.store import read_vehicle
from fedwatt.windows import DataSettings
from fedwatt.windows.client import prepared

HILLS = "hills"  # the value of a question that names the field it is about, by its digest


def hills_file(folder: Path, digest: str) -> Path:
    """Where the memory of a run has the vehicle's hills on top of the field of this digest."""
    return folder / f"hills-{digest}.parquet"


def hills_files(folder: Path) -> list[Path]:
    """All hills in the memory of a run, the latest first: one, or two after a loss of power."""
    return oldest_first(folder.glob(hills_file(folder, "*").name))[::-1]


class HillsOnBoard:
    """A vehicle's answers about hills."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.folder, self.state = folder, state
        # Surveys of the vehicle's trips are kept while hills are being learned.
        self._ground = lru_cache(maxsize=1)(self._surveyed)

    def masked(self, question: Content, config: RunConfig, secrets: Secrets) -> Content:
        """Counts or sums over the nodes of a question, under masks."""
        terms = secrets.terms_about_places("hills", config.terrain.minimum_vehicles)
        ground = self._ground(config.terrain, config.data)
        judged, length = (question.values.get(name) for name in ("judged", "segment_s"))
        if not isinstance(judged, int) or not isinstance(length, int):
            raise DataError("the question does not say what of hills it asks for")
        counting = question.values.get("count") is True
        asked = ground.question(question.arrays, counting=counting, judged=judged, segment_s=length)
        layout = Layout(asked.fields, vehicles=config.deploy.room(terms.called))
        return secrets.masked(question, layout, asked.answer(ground.training))

    def take(self, question: Content, config: RunConfig) -> Content:
        """Make the published field this vehicle's own, and keep it."""
        run, own = question.values.get("run"), question.values.get("own")
        if not isinstance(run, str) or not isinstance(own, bool):
            raise DataError("the question lacks its run")
        shared = field_from_arrays(question.arrays, Grid(cell_m=config.terrain.cell_m))
        digest = field_digest(shared)
        file = self._file(run, digest)
        if not _readable(file):
            ground = self._ground(config.terrain, config.data)
            field = ground.own_field(shared) if own else shared
            forget_old_runs(self.state, run)
            mark(file.parent)
            # Other vehicles contributed to what is shared, and the server does not say who.
            write_atomically(file, lambda part: write_field(part, field, provenance=None))
            flush(file.parent)
        for other in hills_files(file.parent):
            if other != file:  # or a server that changes its mind would fill the disk
                other.unlink(missing_ok=True)
        self._ground.cache_clear()
        return Content({"field": digest})

    def field(self, run: str, digest: str) -> Field:
        """The vehicle's own hills in a run; DataError where it was never sent the field."""
        file = self._file(run, digest)
        if not file.exists():
            raise DataError("the field of this run is not on board yet")
        return read_field(file)

    def _file(self, run: str, digest: str) -> Path:
        if not digest.isalnum() or len(digest) > 64:
            raise DataError("the question names no field")
        return hills_file(run_folder(self.state, run), digest)

    def _surveyed(self, terrain: TerrainSettings, data: DataSettings) -> Ground:
        """The ground that the vehicle has driven."""
        return Ground(prepared(read_vehicle(self.folder), data), terrain, data)


def _readable(file: Path) -> bool:
    """Whether a field was kept before; a damaged file is as good as none."""
    try:
        return file.exists() and read_field(file) is not None
    except DataError:
        return False


def hills_of(values: Mapping[str, Value]) -> tuple[str, str] | None:
    """Run and digest of the field that a question is about; None: of none."""
    run, digest = values.get("run"), values.get(HILLS)
    return (run, digest) if isinstance(run, str) and isinstance(digest, str) else None
