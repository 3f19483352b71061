"""The ground that one vehicle has driven, surveyed on board: what it answers and what it keeps.

Only sums over nodes that everybody is asked about leave the vehicle, and those under masks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.choose import GRADES
from fedwatt.elevation.elevation_map import Field, find
from fedwatt.elevation.encoding import array_of, evaluated_prefix, field_from_arrays
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import own_fields
from fedwatt.elevation.question import Question
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import Survey, whole_survey
from fedwatt.errors import DataError
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.trip import IntArray
from fedwatt.windows import DataSettings

MOST_JUDGED = 1 + len(GRADES)


@dataclass(frozen=True, eq=False)
class Ground:
    """A vehicle's surveys; each is made when it is first needed."""

    vehicle: Vehicle
    settings: ElevationSettings
    data: DataSettings

    def __post_init__(self) -> None:
        if not self.settings.area:
            raise DataError("the configuration has no service area")

    @property
    def grid(self) -> Grid:
        """The grid of the field that is being learned."""
        return Grid(cell_m=self.settings.cell_m)

    @cached_property
    def training(self) -> Survey:
        """Segments of the training trips, and all that choosing a prior needs."""
        lengths = self.settings.lengths
        measured = self.settings.measures
        return whole_survey(self.vehicle, self.grid, lengths, self.data, measured=measured)

    @cached_property
    def area(self) -> IntArray:
        """Nodes of the service area, ascending."""
        return self.settings.service_area.nodes(self.grid)

    def question(
        self,
        arrays: Mapping[str, NDArray[Any]],
        *,
        counting: bool = False,
        evaluated: int = 0,
        segment_s: int = 0,
    ) -> Question:
        """Return the question that `arrays` hold; DataError unless it is about the service area
        alone.

        It asks for counts, for sums, or what validation trips say of so many fields.
        """
        if segment_s and segment_s not in self.settings.lengths:
            raise DataError(f"the question is about segments of {segment_s} s")
        if evaluated:
            if not 2 <= evaluated <= MOST_JUDGED:
                raise DataError(f"the question is about {evaluated} fields")
            prefixes = (evaluated_prefix(number) for number in range(evaluated))
            fields = tuple(field_from_arrays(arrays, self.grid, prefix) for prefix in prefixes)
            return Question(self.grid, self.settings, self.area[:0], evaluated=fields)
        nodes: IntArray = array_of(arrays, "nodes", np.int64)
        _, inside = find(self.area, nodes)
        if not len(nodes) or not inside.all() or (np.diff(nodes) <= 0).any():
            raise DataError("the question is about other nodes than those of the service area")
        field = None if counting else field_from_arrays(arrays, self.grid)
        return Question(self.grid, self.settings, nodes, field, segment_s=segment_s)

    def own_field(self, shared: Field) -> Field:
        """Return the vehicle's map: the shared map with its private nodes added."""
        name = self.vehicle.name
        return own_fields([name], {name: self.training}, shared, self.settings)[name]
