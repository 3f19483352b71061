"""Shell lines of the pages are executed, in order, in one folder for each page.

A page's preparation makes the files that the page names. Lines that need a network, other machines
or minutes are only parsed (tests/test_docs.py); each has a reason here, or the test that runs it.
"""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedwatt.edge.handlers import Handlers, first_problem
from fedwatt.synthetic.fleet import synthetic_vehicles
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import write_fleet, write_vehicle
from tests.cli.test_journeys import ved
from tests.telemetry.recognise.drives import drives

ROOT = Path(__file__).parents[2]
TRIP = "2024-03-09T16-00-00"
"""Name of the first trip of `drives`."""
SETTINGS = ("data.stride=60", "model.hidden=[4]", "personalisation.steps=[10]", "training.steps=2")
BRIEF = ("--rounds", "1", "--seeds", "1", *(f"--set={setting}" for setting in SETTINGS))
"""Added to a training, so that it takes a second or two."""
SMALL = {
    "run": (*BRIEF, "--no-baselines"),
    "tune": (*BRIEF, "--trials", "1"),
    "data generate": ("--trips", "5"),
}
"""Command → words that are added to it."""
OF_FIVE = ("--vehicles", "5", "--set", "fleet.trips=6")
"""Added to a training on the built-in fleet."""

Typed = Callable[..., tuple[int, str]]


def logs(folder: Path, vehicles: tuple[str, ...]) -> None:
    """Write one file with four drives of each vehicle."""
    rows = [
        drives(place=0.1 * number).with_columns(van=pl.lit(name))
        for number, name in enumerate(vehicles)
    ]
    folder.mkdir()
    pl.concat(rows).select(
        **{"vehicle": "van", "time": "t", "speed [km/h]": pl.col("speed") * 3.6},
        **{"voltage [V]": "volt", "current [A]": -pl.col("amp"), "lat": "lat", "lon": "lon"},
        **{"outside temperature [°C]": "temp"},
    ).write_csv(folder / "log.csv")


def readme(folder: Path, type_in: Typed) -> None:
    logs(folder / "recordings", ("CAR", "VAN"))
    link_examples(folder, type_in)


def your_data(folder: Path, type_in: Typed) -> None:
    logs(folder / "logs", ("van-1", "van-2"))


def link_examples(folder: Path, type_in: Typed) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")


def extending(folder: Path, type_in: Typed) -> None:
    link_examples(folder, type_in)
    rides = [
        {
            "ride": f"ride-{number}",
            "t": list(range(300)),
            "kmh": (30 + 10 * np.sin(np.arange(300) / 9 + number)).tolist(),
            "kw": (20 + 5 * np.cos(np.arange(300) / 7)).tolist(),
        }
        for number in range(4)
    ]
    (folder / "DAY.json").write_text(json.dumps({"bus": "bus-1", "rides": rides}))


def a_run(folder: Path, type_in: Typed) -> None:
    """Make a run of the fleet FLEET, in the folder RUN."""
    cars = list(synthetic_vehicles(4, trips=6))
    cars[0] = replace(cars[0], name="car-07")
    write_fleet(folder / "FLEET", cars[:3], "synthetic")
    write_vehicle(folder / "FOLDER", cars[3])
    run = ("run", "--data", "FLEET", *SMALL["run"], "--out", "RUN")
    status, printed = type_in(*run, "--set", "elevation.minimum_vehicles=1")
    assert status == 0, printed
    write_route(folder / "north.gpx", cars[0])


def write_route(file: Path, vehicle: Vehicle) -> None:
    """Write the way of a vehicle's first trip as GPX."""
    channels = vehicle.trips[0].channels
    places = zip(channels["latitude_deg"], channels["longitude_deg"], strict=True)
    points = "".join(f'<trkpt lat="{lat}" lon="{lon}"/>' for lat, lon in places)
    file.write_text(f"<gpx><trk><trkseg>{points}</trkseg></trk></gpx>")


def accuracy(folder: Path, type_in: Typed) -> None:
    """Make a fleet, and posts of a plane that rises to the north around its roads."""
    cars = list(synthetic_vehicles(3, trips=6))
    write_fleet(folder / "fleets" / "ved", cars, "synthetic")
    lat, lon = (
        np.concatenate([trip.channels[name] for car in cars for trip in car.trips])
        for name in ("latitude_deg", "longitude_deg")
    )
    step = 1 / 1200
    south = np.floor(np.nanmin(lat) / step)
    west = np.floor(np.nanmin(lon) / step)
    shape = (slice(south, np.nanmax(lat) / step + 2), slice(west, np.nanmax(lon) / step + 2))
    rows, columns = np.mgrid[shape].reshape(2, -1)
    pl.DataFrame(
        {
            "latitude_deg": (rows * step).round(7),
            "longitude_deg": (columns * step).round(7),
            "elevation_m": 200.0 + rows - south,
        }
    ).write_csv(folder / "srtm3_posts.csv")


def data(folder: Path, type_in: Typed) -> None:
    (folder / "VED").mkdir()
    ved(folder / "VED")
    rising = np.repeat(np.arange(1201)[::-1, None], 1201, axis=1)
    (folder / "N42W084.hgt").write_bytes(rising.astype(">i2").tobytes())


def deploy(folder: Path, type_in: Typed) -> None:
    (folder / "office").mkdir()
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (configuration,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (folder / "office" / "fleet.toml").write_text(configuration)


def nothing(folder: Path, type_in: Typed) -> None:
    """Make no file."""


PREPARED = {
    "README.md": readme,
    "accuracy.md": accuracy,
    "adapt.md": a_run,
    "data.md": data,
    "deploy.md": deploy,
    "extending.md": extending,
    "journeys.md": a_run,
    "methods.md": nothing,
    "scale.md": nothing,
    "tuning.md": nothing,
    "watching.md": nothing,
    "your-data.md": your_data,
}
"""Page → what makes the files that it names."""
NAMES = {"README.md": {"CAR/TRIP": f"CAR/{TRIP}"}, "adapt.md": {"FOLDER/TRIP": "FOLDER/trip-001"}}
"""Page → names in capitals that stand for others."""

SERVES = "serves until Ctrl-C: "
ONLY_PARSED = {
    "make ": "sets up or tests the project itself; CI runs it",
    ". .venv/": "as above",
    "pip install": "needs a network",
    "curl ": "test_the_requests_of_the_service_page_are_answered, without a network",
    "FEDWATT_TOKEN": SERVES + "tests/edge/test_service.py",
    "fedwatt serve": SERVES + "tests/edge/test_service.py",
    "fedwatt watch ": SERVES + "tests/report/test_live.py",
    "fedwatt deploy server": SERVES + "tests/deploy/transport/test_processes.py starts it",
    "fedwatt deploy vehicle": SERVES + "tests/deploy/transport/test_processes.py starts it",
    "fedwatt deploy run": "tests/deploy/transport/test_processes.py carries a plan out",
    "fedwatt deploy dashboard": SERVES + "tests/deploy/operate/test_dashboard.py",
    "fedwatt deploy backup": "tests/cli/test_deploy.py, with a run of a deployed fleet",
    "fedwatt deploy restore": "tests/cli/test_deploy.py, with a run of a deployed fleet",
    "fedwatt run --set track.": "tests/runs/test_trackers.py runs the trackers",
    "tensorboard ": "another program",
    "mlflow ": "another program",
    "ray ": "another program",
    "fedwatt run --method fedavg --method scaffold --method fo-ri-fedavg --ray": "needs a cluster; "
    "tests/tuning/test_grid.py has one of this machine",
    "fedwatt tune study.toml --ray": "as above",
    "fedwatt bench fleet": "tests/benchmarks/test_many_vehicles.py, with fewer vehicles",
    "fedwatt compare": "tests/comparison/test_cli.py",
    "fedwatt reproduce": "needs VED; tests/reproduction runs small studies",
    "python -m reproduction": "tests/reproduction compares the page",
}
"""Beginning of a line → why it is not executed here, or where it is."""

PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if path.name not in ("commands.md", "python.md", "configuration.md")
]
PROGRAMS = r"(fedwatt|make|pip|python|curl|tensorboard|mlflow|ray|\.) |FEDWATT_TOKEN="


def shell_lines(text: str) -> list[str]:
    """Return the shell lines of fenced and indented blocks, in their order."""
    blocks = r"^```(\w*)[^\n]*\n(.*?)^```|^((?:(?: {4}|\t).*\n)+)"
    lines = []
    for language, fenced, indented in re.findall(blocks, text, re.DOTALL | re.MULTILINE):
        if language in ("", "bash", "console", "text"):
            lines += (fenced or indented).replace("\\\n", " ").splitlines()
    typed = (re.sub(r"^\s*(?:\$ )?", "", line) for line in lines)
    return [line for line in typed if re.match(PROGRAMS, line)]


def reason_not_to_run(line: str) -> str | None:
    return next((why for begin, why in ONLY_PARSED.items() if line.startswith(begin)), None)


def to_run(page: Path) -> list[str]:
    lines = shell_lines(page.read_text(encoding="utf-8"))
    return [line for line in lines if reason_not_to_run(line) is None]


def words_of(line: str, page: str) -> list[str]:
    """Return the words after `fedwatt`, with what makes the command small."""
    for name, meaning in NAMES.get(page, {}).items():
        line = line.replace(name, meaning)
    program, *words = shlex.split(line, comments=True)
    assert program == "fedwatt", f"{page}: '{line}' is neither run nor has a reason in ONLY_PARSED"
    added = next((more for name, more in SMALL.items() if " ".join(words).startswith(name)), ())
    on_builtin = words[0] in ("run", "tune") and "--data" not in words and "best.toml" not in line
    return [*words, *added, *(OF_FIVE if on_builtin else ())]


@pytest.mark.parametrize("page", [p for p in PAGES if to_run(p)], ids=lambda page: page.name)
def test_lines_run_in_their_order(page: Path, type_in: Typed, tmp_path: Path) -> None:
    PREPARED[page.name](tmp_path, type_in)
    for line in to_run(page):
        status, printed = type_in(*words_of(line, page.name))
        assert status == 0, f"{line}\n{printed}"


def test_the_requests_of_the_service_page_are_answered() -> None:
    text = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    (typed,) = re.findall(r"-d '(.*?)'", text, re.DOTALL)
    (template,) = re.findall(r"payload_template: >-\n(.*?)\n +scan_interval", text, re.DOTALL)
    for request in (typed, re.sub(r"\{\{.*?\}\}", "20", template)):
        body = json.loads(request)
        assert first_problem(body, "RouteRequest") is None
        answer = Handlers.of("leaf-24").route(body)["answer"]
        assert answer.startswith("You arrive with "), answer


def test_every_reason_is_of_a_line() -> None:
    lines = [line for page in PAGES for line in shell_lines(page.read_text(encoding="utf-8"))]
    unused = [begin for begin in ONLY_PARSED if not any(line.startswith(begin) for line in lines)]
    assert unused == []
    assert PREPARED.keys() == {page.name for page in PAGES if to_run(page)}


def test_lines_are_found_in_their_order() -> None:
    fenced = "```console\n$ fedwatt two \\\n  --b\nprinted\n```\n"
    text = f"    fedwatt one\n\n{fenced}\n    pip install x\n"
    assert shell_lines(text) == ["fedwatt one", "fedwatt two    --b", "pip install x"]
