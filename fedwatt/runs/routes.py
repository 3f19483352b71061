"""The routes of a run: what its fleet has learned about them, and a vehicle's own part.

RUN/routes.json is made of sums over the training and validation trips of the run's vehicles. For
simulated vehicles it is written when it is first needed; a real fleet makes it in the run, where
`deploy.routes` asks for it.
"""

from pathlib import Path

from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import own_fields, survey_fleet
from fedwatt.elevation.survey import mass_kg
from fedwatt.errors import DataError
from fedwatt.files import write_bytes
from fedwatt.journeys.fleet_routes import FleetRoutes, VehicleRoutes, passes
from fedwatt.journeys.route_exchange import learn_routes
from fedwatt.journeys.route_files import fleet_from_bytes, fleet_to_bytes
from fedwatt.journeys.route_model import RouteModel
from fedwatt.runs.config import RunConfig
from fedwatt.runs.elevation import learned_elevation
from fedwatt.runs.source import source_vehicles
from fedwatt.sums import add_up
from fedwatt.telemetry import Vehicle
from fedwatt.windows.client import prepared, split_of_trips
from fedwatt.windows.split import held_out_vehicles

ROUTES = "routes.json"
FEWEST_TRIPS = 3
"""With fewer trips than these a vehicle has no split; all of them teach."""


def run_routes(run: Path, config: RunConfig) -> FleetRoutes:
    """Return the route model of a run's fleet."""
    file = run / ROUTES
    if file.is_file():
        return fleet_from_bytes(file.read_bytes(), str(file))
    if (run / "deployment.json").exists():
        raise DataError(
            f"The vehicles of {run} are on the road, and have not shared how they drive: there is "
            f"no {file}. Submit a run with deploy.routes = true."
        )
    routes = learn_run_routes(config)
    write_bytes(file, fleet_to_bytes(routes))
    return routes


def learn_run_routes(config: RunConfig) -> FleetRoutes:
    """Return the routes that the simulated vehicles of a run learn; those held out contribute
    nothing.

    Hills are learned for them whether or not the run's features have them.
    """
    names = [vehicle.name for vehicle in source_vehicles(config.fleet, config.data)]
    never = held_out_vehicles(names, config.data.held_out, config.data.split_seed)
    learned = learned_elevation(config)
    boards = {
        vehicle.name: route_board(vehicle, config, learned.own[vehicle.name])
        for vehicle in source_vehicles(config.fleet, config.data)
        if vehicle.name not in never
    }
    add = add_up if config.secure.enabled else None
    return learn_routes(boards, config.elevation, add_up=add, hills=learned.shared)


def own_elevation(vehicle: Vehicle, config: RunConfig, shared: Field | None) -> Field | None:
    """Return the shared hills and, on top, what the vehicle's own trips bear out of its private
    ones.
    """
    if shared is None or len({trip.recording for trip in vehicle.trips}) < FEWEST_TRIPS:
        return shared
    alone = frozenset([vehicle.name])
    survey = survey_fleet([vehicle], alone, shared.grid, config.elevation, config.data)
    return own_fields(*survey, shared, config.elevation)[vehicle.name]


def route_board(vehicle: Vehicle, config: RunConfig, hills: Field | None) -> VehicleRoutes:
    """Return a vehicle's passes of its training and validation trips."""
    trips = list(vehicle.trips)
    if len({trip.recording for trip in trips}) >= FEWEST_TRIPS:
        split_of = split_of_trips(vehicle, config.data)
        trips = [trip for trip in trips if split_of.get(trip.name, "test") != "test"]
    grid = Grid(cell_m=config.elevation.cell_m)
    return VehicleRoutes(passes(trips, grid), hills, mass_kg(vehicle), grid)


def vehicle_routes(run: Path, config: RunConfig, vehicle: Vehicle) -> RouteModel:
    """Return a vehicle's model of routes; that of an unseen vehicle where the run never saw it."""
    fleet = run_routes(run, config)
    if len({trip.recording for trip in vehicle.trips}) >= FEWEST_TRIPS:
        vehicle = prepared(vehicle, config.data)  # as the fleet's own vehicles were
    return fleet.personalised(
        route_board(vehicle, config, own_elevation(vehicle, config, fleet.hills)),
        vehicle.name,
        contributed=vehicle.name in fleet.insiders,
        capacity_wh=float(vehicle.facts.get("pack_capacity_wh") or 0.0),
    )
