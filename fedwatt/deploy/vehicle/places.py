"""A vehicle's part in sums over places: the elevation map and the routes of its fleet.

Contributions are counts and sums over nodes that all vehicles are asked about, and leave the
vehicle only under secure aggregation. Kept in the vehicle:

    STATE/plans/DIGEST/elevation.parquet      the fleet's elevation map, extended by its own trips
    STATE/plans/DIGEST/elevation.digest       digest of the fleet's map
    STATE/plans/DIGEST/driving.json           how the fleet drives

The first elevation map of a plan is kept; another one is refused, since features follow from it.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fedwatt.deploy.vehicle.client_state import plan_folder
from fedwatt.deploy.wire import Content
from fedwatt.elevation.elevation_map import ElevationMap, map_digest, map_from_arrays
from fedwatt.elevation.request import VehicleElevation
from fedwatt.elevation.store import read_map_file, write_map_file
from fedwatt.errors import DataError
from fedwatt.files import flush, write_atomically, write_bytes, write_text
from fedwatt.journeys.driving_exchange import DRIVING, DrivingRequest
from fedwatt.journeys.fleet_routes import VehicleRoutes
from fedwatt.journeys.route_exchange import (
    ROUTE_SUMS,
    RouteContributor,
    RouteRequest,
    SharedDriving,
)
from fedwatt.journeys.route_files import Arrays, from_bytes, to_bytes
from fedwatt.metrics.sums import Contribution, Fields
from fedwatt.runs.config import RunConfig
from fedwatt.runs.journeys import vehicle_route_passes
from fedwatt.telemetry.store import read_vehicle
from fedwatt.windows.client import prepared

if TYPE_CHECKING:
    from fedwatt.deploy.vehicle.compute import AcceptedRequest

MAP = "elevation.parquet"
MAP_DIGEST = "elevation.digest"
DRIVING_MAP = "driving.json"


class Places:
    """A vehicle's elevation and routes."""

    def __init__(self, folder: Path, state: Path, config_of: Callable[[str], RunConfig]) -> None:
        self.folder = folder
        self.state = state
        self.config_of = config_of
        # Surveys of the vehicle's trips are kept while a map is being learned.
        self._ground = lru_cache(maxsize=1)(self._survey)
        self._vehicle_routes = lru_cache(maxsize=1)(self._passes_of)
        self._contributor = lru_cache(maxsize=1)(self._route_contributor)

    def contribution(self, job: "AcceptedRequest") -> tuple[Fields, Contribution]:
        """Return the fields and values that a request asks for."""
        config = self.config_of(job.plan)
        if job.threshold < config.elevation.minimum_vehicles:
            raise DataError(
                f"sums over places are asked for of {job.threshold} vehicles or more, and a place "
                f"is hidden unless {config.elevation.minimum_vehicles} drive there"
            )
        return self._elevation(job) if job.kind == "elevation" else self._routes(job, config)

    def _elevation(self, job: "AcceptedRequest") -> tuple[Fields, Contribution]:
        values = job.request.values
        ground = self._ground(job.plan)
        request = ground.request(
            job.request.arrays,
            counting=bool(values["count"]),
            evaluated=int(values["evaluated"]),
            segment_s=int(values["segment_s"]),
        )
        return request.fields, request.answer(ground.training)

    def _routes(self, job: "AcceptedRequest", config: RunConfig) -> tuple[Fields, Contribution]:
        if not config.deploy.routes:
            raise DataError("the plan has no routes")
        asks = str(job.request.values["asks"])
        digest = self.elevation_digest(job.plan)
        if asks in DRIVING:
            places = DrivingRequest.read(asks, job.request.arrays, config.elevation)
            driven = self._vehicle_routes(job.plan, digest)
            return places.fields, places.answer(driven.sums)
        routes = RouteRequest.read(asks, job.request.arrays)
        driving = self._driving_file(job.plan)
        contributor = self._contributor(job.plan, digest, driving.stat().st_mtime_ns)
        answer = routes.answer(contributor)
        if asks == ROUTE_SUMS[-1]:  # trips need memory, which training wants back
            self._vehicle_routes.cache_clear()
            self._contributor.cache_clear()
        return routes.fields, answer

    def install(self, job: "AcceptedRequest") -> Content:
        """Store a published elevation map or driving field in the plan's folder."""
        config = self.config_of(job.plan)
        grid = config.elevation.grid
        folder = plan_folder(self.state, job.plan)
        if job.kind == "driving-map":
            shared = SharedDriving.read(job.request.arrays, grid, config.elevation.minimum_vehicles)
            write_bytes(folder / DRIVING_MAP, to_bytes(shared.arrays))
            return Content({"map": shared.digest})
        published = map_from_arrays(job.request.arrays, grid)
        digest = map_digest(published)
        file = folder / MAP_DIGEST
        if not file.exists():  # written first: whether extending a map fails can depend on the data
            write_text(file, digest)
        if file.read_text(encoding="utf-8") != digest:
            raise DataError("this plan has another elevation map already")
        if (folder / MAP).exists():
            return Content({"map": digest})
        extended = published
        if job.request.values["extend"]:
            extended = self._ground(job.plan).vehicle_map(published)
        # Other vehicles contributed to the published map, and the server does not say which.
        write_atomically(folder / MAP, lambda part: write_map_file(part, extended, provenance=None))
        flush(folder)
        self._ground.cache_clear()
        return Content({"map": digest})

    def elevation_digest(self, plan: str) -> str:
        """Return the digest of the plan's elevation map; DataError where there is none yet."""
        folder = plan_folder(self.state, plan)
        if not (folder / MAP).exists():
            raise DataError("the elevation map of this plan is not here yet")
        return (folder / MAP_DIGEST).read_text(encoding="utf-8")

    def elevation(self, plan: str) -> ElevationMap:
        """Return the elevation map of a plan as extended in this vehicle."""
        return read_map_file(plan_folder(self.state, plan) / MAP)

    def _survey(self, plan: str) -> VehicleElevation:
        config = self.config_of(plan)
        vehicle = prepared(read_vehicle(self.folder), config.data)
        return VehicleElevation(vehicle, config.elevation, config.data)

    def _passes_of(self, plan: str, digest: str) -> VehicleRoutes:
        config = self.config_of(plan)
        vehicle = prepared(read_vehicle(self.folder), config.data)
        return vehicle_route_passes(vehicle, config, self.elevation(plan))

    def _route_contributor(self, plan: str, digest: str, written: int) -> RouteContributor:
        elevation = self.config_of(plan).elevation
        grid = elevation.grid
        try:
            arrays = from_bytes(Arrays, self._driving_file(plan).read_bytes())
            shared = SharedDriving.read(arrays, grid, elevation.minimum_vehicles)
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"the driving map of this plan is not here ({error})") from error
        return RouteContributor(self._vehicle_routes(plan, digest), shared)

    def _driving_file(self, plan: str) -> Path:
        file = plan_folder(self.state, plan) / DRIVING_MAP
        if not file.exists():
            raise DataError("the driving map of this plan is not here yet")
        return file
