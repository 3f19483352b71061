"""Electric vehicles in a small town driven by Eclipse SUMO, among traffic.

    pip install eclipse-sumo
    python -m examples.sumo_town --vehicles 10 --trips 10 --out fleets/sumo

Nodes, edges and trips are written to files; `netconvert` builds the network and `sumo` drives it.
Traffic lights, queues and lane changes are SUMO's, and so is the energy (its battery device, with
the vehicle's mass, drag and losses); elevations, vehicles and drivers are those of the built-in
fleet. SUMO has no weather: heater and air conditioning follow from the town's climate, and their
energy is added.
"""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from numpy.random import Generator

from fedwatt.errors import RunError, SettingError
from fedwatt.randomness import generator
from fedwatt.synthetic.driver import draw_style
from fedwatt.synthetic.town import degrees, draw_landscape, trip_temperatures_c
from fedwatt.synthetic.vehicle import DUTIES, climate_power_w, draw_vehicle
from fedwatt.telemetry.importing import Column, vehicles_from_frame
from fedwatt.telemetry.trip import Vehicle

BLOCK_M = 400.0
ARTERIAL_EVERY = 3
STREET_MPS = 40 / 3.6
ARTERIAL_MPS = 70 / 3.6
DRAG_COEFFICIENT = 0.3  # SUMO multiplies it by an area; only the product matters
REST_S = (300.0, 900.0)  # between a vehicle's departures
START_CHARGE = 0.8
SUMO_TIMEOUT_S = 3600.0
LENGTHS_M = {"passenger": 4.5, "truck": 7.5, "bus": 12.0}

Road = tuple[str, str, bool]  # its two ends, and whether it is an arterial


@dataclass(frozen=True, kw_only=True)
class SumoTown:
    """Settings of a square town: `junctions` along a side, `traffic` other vehicles per hour."""

    vehicles: int = 10
    trips: int = 10
    seed: int = 0
    kind: str = "passenger"
    junctions: int = 9
    traffic: int = 400


def sumo_tool(name: str) -> str:
    """Return the path of a SUMO program, from the Python package or from the system."""
    package = find_spec("sumo")
    if package and package.submodule_search_locations:
        inside = Path(next(iter(package.submodule_search_locations))) / "bin" / name
        if inside.is_file():
            return str(inside)
    executable = shutil.which(name)
    if executable is None:
        raise SettingError("Driving in SUMO needs Eclipse SUMO: pip install eclipse-sumo.")
    return executable


def drive_in_sumo(town: SumoTown, folder: Path) -> pl.DataFrame:
    """Build the town in `folder`, drive it, and return each second of its electric vehicles."""
    network, fcd, battery = (folder / name for name in ("town.net.xml", "fcd.csv", "battery.csv"))
    netconvert = sumo_tool("netconvert")
    sumo = sumo_tool("sumo")
    nodes, edges, trips = write_town(town, folder)
    # Positions stay those of the town.
    keep = ("--offset.disable-normalization", "true")
    _run([netconvert, "-n", nodes, "-e", edges, "-o", network, *keep])
    _run(
        [
            *(sumo, "-n", network, "-r", trips, "--seed", str(town.seed), "--no-step-log"),
            *("--fcd-output", fcd, "--fcd-output.attributes", "id,x,y,z,speed,slope"),
            # Other traffic is there to be in the way, not to be recorded.
            *("--device.fcd.probability", "0", "--battery-output", battery),
            *("--precision", "6", "--battery-output.precision", "6", "--no-warnings"),
            *("--time-to-teleport", "-1", "--xml-validation", "never"),
        ]
    )
    motion, packs = (
        pl.read_csv(file, separator=";", infer_schema_length=None).drop_nulls("vehicle_id")
        for file in (fcd, battery)
    )
    seconds = ["timestep_time", "vehicle_id"]
    charge = pl.col("vehicle_actualBatteryCapacity") / pl.col("vehicle_maximumBatteryCapacity")
    packs = packs.select(*seconds, "vehicle_energyConsumed", charge=charge)
    return motion.join(packs, seconds, maintain_order="left")


def write_town(town: SumoTown, folder: Path) -> tuple[Path, Path, Path]:
    """Write the files of SUMO's network and traffic: nodes, edges and trips."""
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / "town.nod.xml", folder / "town.edg.xml", folder / "town.rou.xml"
    roots = {"nodes": _nodes(town), "edges": _edges(town), "routes": _trips(town)}
    for file, (root, lines) in zip(files, roots.items(), strict=True):
        text = "\n".join((f"<{root}>", *lines, f"</{root}>\n"))
        file.write_text(text, encoding="utf-8")
    return files


def _nodes(town: SumoTown) -> Iterator[str]:
    at_m = BLOCK_M * (np.arange(town.junctions) - (town.junctions - 1) / 2)
    east_m, north_m = (grid.ravel() for grid in np.meshgrid(at_m, at_m, indexing="ij"))
    height_m = draw_landscape(town.seed).elevation_m(east_m, north_m)
    for number, (x, y, z) in enumerate(zip(east_m, north_m, height_m, strict=True)):
        i, j = divmod(number, town.junctions)
        lights = i % ARTERIAL_EVERY == 0 and j % ARTERIAL_EVERY == 0
        kind = "traffic_light" if lights else "priority"
        yield f'<node id="{i}-{j}" x="{x:.2f}" y="{y:.2f}" z="{z:.3f}" type="{kind}"/>'


def _edges(town: SumoTown) -> Iterator[str]:
    for begin, other, arterial in _roads(town):
        lanes = 2 if arterial else 1
        speed_mps = ARTERIAL_MPS if arterial else STREET_MPS
        for start, end in ((begin, other), (other, begin)):
            yield (
                f'<edge id="{start}_{end}" from="{start}" to="{end}" numLanes="{lanes}" '
                f'priority="{lanes}" speed="{speed_mps:.3f}"/>'
            )


def _roads(town: SumoTown) -> list[Road]:
    """Return the ends of every road, and whether it is an arterial."""
    roads = []
    for line in range(town.junctions):
        arterial = line % ARTERIAL_EVERY == 0
        for block in range(town.junctions - 1):
            roads.append((f"{line}-{block}", f"{line}-{block + 1}", arterial))
            roads.append((f"{block}-{line}", f"{block + 1}-{line}", arterial))
    return roads


def _trips(town: SumoTown) -> list[str]:
    """Return the types of all vehicles, then all departures in order of time."""
    types = ['<vType id="traffic" sigma="0.5" speedDev="0.1"/>']
    roads = _roads(town)
    departures: list[tuple[float, str]] = []
    for number in range(1, town.vehicles + 1):
        name = f"sumo-{number:03d}"
        types.append(_vehicle_type(name, town))
        rng = generator(town.seed, "sumo trips", name)
        home = roads[int(rng.integers(len(roads)))]
        here = home
        time_s = float(rng.uniform(0, REST_S[1]))
        for trip in range(town.trips):
            back = here != home and rng.random() < 0.5
            destination = home if back else _elsewhere(roads, here, rng)
            departure = _trip(f"{name}.{trip + 1}", name, time_s, here, destination)
            departures.append((time_s, departure))
            here = destination
            time_s += float(rng.uniform(*REST_S))
    rng = generator(town.seed, "sumo traffic")
    last_s = max(time_s for time_s, _ in departures)
    for number, time_s in enumerate(rng.uniform(0, last_s, int(town.traffic * last_s / 3600))):
        start, end = (roads[int(i)] for i in rng.choice(len(roads), 2, replace=False))
        departures.append((time_s, _trip(f"traffic.{number}", "traffic", time_s, start, end)))
    ordered = sorted(departures, key=lambda departure: departure[0])
    return [*types, *(line for _, line in ordered)]


def _trip(name: str, kind: str, time_s: float, start: Road, end: Road) -> str:
    return (
        f'<trip id="{name}" type="{kind}" depart="{time_s:.0f}" from="{start[0]}_{start[1]}" '
        f'to="{end[0]}_{end[1]}" departLane="best"/>'
    )


def _elsewhere(roads: list[Road], here: Road, rng: Generator) -> Road:
    """Return a road at least three blocks away."""
    place = {road: np.array(road[0].split("-"), int) for road in roads}
    far = [road for road in roads if np.abs(place[road] - place[here]).sum() >= 3]
    choice = far or [road for road in roads if road != here]
    return choice[int(rng.integers(len(choice)))]


def _vehicle_type(name: str, town: SumoTown) -> str:
    _, vehicle = draw_vehicle(town.kind, generator(town.seed, "vehicle", name))
    duty = DUTIES[town.kind]
    style = draw_style(generator(town.seed, "driver", name), duty)
    capacity_wh = vehicle.pack.capacity_wh
    # SUMO has one efficiency each way: that of the map of losses in the middle of its range.
    drivetrain = vehicle.drivetrain
    middle = float(drivetrain.efficiency(np.array(drivetrain.peak_force_n / 5), np.array(12.0)))
    parameters = {
        "has.battery.device": "true",
        "has.fcd.device": "true",
        "device.battery.capacity": f"{capacity_wh:.0f}",
        "device.battery.chargeLevel": f"{START_CHARGE * capacity_wh:.0f}",
        "airDragCoefficient": f"{DRAG_COEFFICIENT}",
        "frontSurfaceArea": f"{vehicle.drag_area_m2 / DRAG_COEFFICIENT:.3f}",
        "rollDragCoefficient": f"{vehicle.rolling_coefficient:.5f}",
        "rotatingMass": f"{(vehicle.rotating_mass_factor - 1) * vehicle.mass_kg:.1f}",
        "constantPowerIntake": f"{vehicle.auxiliary_w:.0f}",
        "propulsionEfficiency": f"{middle:.3f}",
        "recuperationEfficiency": f"{vehicle.regeneration_share * middle:.3f}",
    }
    lines = (f'<param key="{key}" value="{value}"/>' for key, value in parameters.items())
    return (
        f'<vType id="{name}" emissionClass="Energy" length="{LENGTHS_M[town.kind]}" '
        f'mass="{vehicle.mass_kg:.0f}" accel="{style.accelerating_mps2:.2f}" '
        f'decel="{style.braking_mps2 + 1:.2f}" speedFactor="{style.speed_factor:.3f}" '
        f'maxSpeed="{min(duty.top_mps, 50.0):.2f}" sigma="0.4">{"".join(lines)}</vType>'
    )


def _run(command: list[str | Path]) -> None:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SUMO_TIMEOUT_S)
    except subprocess.TimeoutExpired as problem:
        raise RunError(
            f"{Path(command[0]).name} did not finish within {SUMO_TIMEOUT_S:.0f} s. "
            "Ask for fewer vehicles, trips or less traffic."
        ) from problem
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise RunError(f"{Path(command[0]).name} failed: {reason[0]}")


def sumo_vehicles(town: SumoTown) -> Iterator[Vehicle]:
    """Drive the town in SUMO and yield its electric vehicles, one at a time."""
    with TemporaryDirectory(prefix="fedwatt-sumo-") as folder:
        rows = drive_in_sumo(town, Path(folder))
    latitude_deg, longitude_deg = degrees(*rows["vehicle_x", "vehicle_y"].to_numpy().T)
    # In SUMO a vehicle drives once: "sumo-001.2" is trip 2 of sumo-001.
    name, trip = (pl.col("vehicle_id").str.extract(r"(.+)\.(\d+)$", group) for group in (1, 2))
    rows = rows.with_columns(
        name=name,
        trip=trip,
        latitude=pl.Series(latitude_deg),
        longitude=pl.Series(longitude_deg),
    )
    columns = {"vehicle": "name", "trip": "trip", "time": "timestep_time"}
    channels: dict[str, Column] = {
        "speed": "vehicle_speed",
        "energy_step": "vehicle_energyConsumed",
        "soc": "charge",
        "elevation": "vehicle_z",
        "grade": ("vehicle_slope", "degree"),
        "latitude": "latitude",
        "longitude": "longitude",
    }
    for vehicle in vehicles_from_frame(rows, columns, channels):
        yield _with_climate(vehicle, town)


def _with_climate(vehicle: Vehicle, town: SumoTown) -> Vehicle:
    model, parameters = draw_vehicle(town.kind, generator(town.seed, "vehicle", vehicle.name))
    outside_c = trip_temperatures_c(vehicle.name, town.seed, len(vehicle.trips))
    trips = []
    for trip, ambient in zip(vehicle.trips, outside_c, strict=True):
        ambient_c = np.full(trip.seconds, ambient)
        clock_s = np.arange(trip.seconds, dtype=float)
        heater_w, ac_w = climate_power_w(parameters, ambient_c, clock_s)
        channels = {
            **trip.channels,
            "ambient_c": ambient_c,
            "heater_w": heater_w,
            "ac_w": ac_w,
            "energy_wh": trip.channels["energy_wh"] + (heater_w + ac_w) / 3600,
        }
        trips.append(replace(trip, channels=channels))
    facts = {
        "source": f"SUMO, seed {town.seed}",
        "model": model,
        **parameters.facts,
    }
    return Vehicle(vehicle.name, tuple(trips), town.kind, "simulated", facts)
