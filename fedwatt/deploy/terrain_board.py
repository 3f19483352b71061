"""Hills on board: a vehicle's part in learning them under masks, and the field that comes of it.

A vehicle is asked for counts and sums over nodes that everybody is asked about, and answers under
the masks of a secure sum; there is no question that it would answer in the clear. The published
field it is then sent is where its own hills begin: it learns ground that is not published by
itself, keeps what its validation trips bear out, and writes that to its own disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.data import DataSettings, Vehicle
from fedwatt.data.store import read_vehicle
from fedwatt.deploy.memory import forget_old_runs, hills_file, hills_files, mark, run_folder
from fedwatt.deploy.messages import Content, Value
from fedwatt.deploy.secure_board import Secrets
from fedwatt.errors import DataError
from fedwatt.files import flush, write_atomically
from fedwatt.privacy.secure import Layout
from fedwatt.runs.config import RunConfig
from fedwatt.terrain import Field, Grid, TerrainSettings
from fedwatt.terrain.exchange import Question
from fedwatt.terrain.field import find
from fedwatt.terrain.grid import IntArray
from fedwatt.terrain.learn import own_fields
from fedwatt.terrain.store import read_field, write_field
from fedwatt.terrain.survey import Survey, survey

HILLS = "hills"
"""The value of a question that names the field it is about, by its digest."""
FIELD = "field."
"""Prefix of a field's arrays in a question."""
ARRAYS = {"keys": np.int64, "elevation_m": np.float64, "region": np.int64}


def field_arrays(field: Field) -> dict[str, NDArray[Any]]:
    """A field as it travels: nodes, elevations and regions, and not how many drove there."""
    return {FIELD + name: np.asarray(getattr(field, name), kind) for name, kind in ARRAYS.items()}


def digest_of(field: Field) -> str:
    """What a field is known by."""
    digest = sha256(np.float64(field.grid.cell_m).tobytes())
    for array in field_arrays(field).values():
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def field_from(arrays: Mapping[str, NDArray[Any]], grid: Grid) -> Field:
    """The field of a question; DataError if there is none."""
    keys, elevation_m, region = (
        _array(arrays, FIELD + name, kind) for name, kind in ARRAYS.items()
    )
    same = len(keys) == len(elevation_m) == len(region)
    if not same or not np.isfinite(elevation_m).all() or (np.diff(keys) <= 0).any():
        raise DataError("the question holds no field")
    unknown = np.zeros(len(keys))
    return Field(grid, keys, elevation_m, region, unknown, unknown.astype(np.int64))


def _array(arrays: Mapping[str, NDArray[Any]], name: str, kind: type) -> NDArray[Any]:
    array = arrays.get(name)
    if array is None or array.dtype != kind or array.ndim != 1:
        raise DataError(f"the question lacks '{name}'")
    return array


@dataclass(frozen=True)
class _Ground:
    """What a vehicle surveys of its trips; kept while hills are being learned."""

    folder: Path
    settings: TerrainSettings
    data: DataSettings

    @property
    def grid(self) -> Grid:
        return Grid(cell_m=self.settings.cell_m)

    @cached_property
    def vehicle(self) -> Vehicle:
        return read_vehicle(self.folder)

    @cached_property
    def training(self) -> Survey:
        return survey(self.vehicle, self.grid, self.settings.segment_s, self.data)

    @cached_property
    def validation(self) -> Survey:
        return survey(self.vehicle, self.grid, self.settings.segment_s, self.data, "validation")

    @cached_property
    def area(self) -> IntArray:
        return self.settings.service_area.nodes(self.grid)


class HillsOnBoard:
    """A vehicle's answers about hills."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.folder, self.state = folder, state
        self._ground: _Ground | None = None

    def masked(self, question: Content, config: RunConfig, secrets: Secrets) -> Content:
        """Counts or sums over the nodes of a question, under masks."""
        terms, least = secrets.terms, config.terrain.minimum_vehicles
        if terms.threshold < least:
            raise DataError(
                f"hills are asked for of {terms.threshold} vehicles or more, and a place is hidden "
                f"unless {least} drive there"
            )
        ground = self._of(config)
        asked = self._question(question, ground)
        layout = Layout.of(asked.fields, vehicles=terms.called)
        return secrets.masked(question, layout, asked.answer(ground.training))

    def _question(self, question: Content, ground: _Ground) -> Question:
        """What is asked, if it is about the service area and nothing else."""
        nodes: IntArray = _array(question.arrays, "nodes", np.int64)
        _, inside = find(ground.area, nodes)
        if not len(nodes) or not inside.all() or (np.diff(nodes) <= 0).any():
            raise DataError("the question is about other nodes than those of the service area")
        counting = question.values.get("count") is True
        field = None if counting else field_from(question.arrays, ground.grid)
        return Question(ground.grid, ground.settings, nodes, field)

    def take(self, question: Content, config: RunConfig) -> Content:
        """Make the published field this vehicle's own, and keep it."""
        run, own = question.values.get("run"), question.values.get("own")
        if not isinstance(run, str) or not isinstance(own, bool):
            raise DataError("the question lacks its run")
        shared = field_from(question.arrays, Grid(cell_m=config.terrain.cell_m))
        digest = digest_of(shared)
        file = self._file(run, digest)
        if not _readable(file):
            ground = self._of(config)
            field = self._own(ground, shared) if own else shared
            forget_old_runs(self.state, run)
            mark(file.parent)
            # Others taught what is shared in it, and the server does not say who.
            write_atomically(file, lambda part: write_field(part, field, taught=None))
            flush(file.parent)
        for other in hills_files(file.parent):
            if other != file:  # or a server that changes its mind would fill the disk
                other.unlink(missing_ok=True)
        self._ground = None
        return Content({"field": digest})

    def field(self, run: str, digest: str) -> Field:
        """The vehicle's own hills in a run; DataError where it was never sent the field."""
        file = self._file(run, digest)
        if not file.exists():
            raise DataError("the field of this run is not on board yet")
        return read_field(file)

    def _own(self, ground: _Ground, shared: Field) -> Field:
        """What the vehicle keeps of the shared field and its own ground."""
        name = ground.vehicle.name
        surveys, judges = {name: ground.training}, {name: ground.validation}
        return own_fields([name], surveys, judges, shared, ground.settings)[name]

    def _file(self, run: str, digest: str) -> Path:
        if not digest.isalnum() or len(digest) > 64:
            raise DataError("the question names no field")
        return hills_file(run_folder(self.state, run), digest)

    def _of(self, config: RunConfig) -> _Ground:
        if not config.terrain.area:
            raise DataError("the configuration has no service area")
        wanted = _Ground(self.folder, config.terrain, config.data)
        if self._ground != wanted:
            self._ground = wanted
        assert self._ground is not None
        return self._ground


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
