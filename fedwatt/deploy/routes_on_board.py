"""Routes on board: a vehicle's part in learning, under masks, how its fleet drives.

Its passes stay on board. It answers sums over places that everybody is asked about, and, once it
has been sent the driving field of the fleet, sums for what routes take: all of one length, under
the masks of a secure sum, and none in the clear. What it keeps:

    STATE/memory/RUN/driving-DIGEST.json     how the fleet drives, as it was sent
"""

from pathlib import Path

from fedwatt.deploy.hills_on_board import HillsOnBoard, hills_of
from fedwatt.deploy.memory import forget_old_runs, mark, run_folder
from fedwatt.deploy.messages import Content
from fedwatt.deploy.questions import value
from fedwatt.deploy.secure_board import Secrets
from fedwatt.elevation.grid import Grid
from fedwatt.errors import DataError
from fedwatt.files import flush, write_bytes
from fedwatt.journeys.driving_exchange import DRIVING, DrivingQuestion
from fedwatt.journeys.route_board import RouteBoard
from fedwatt.journeys.route_files import load_arrays, save_arrays
from fedwatt.journeys.route_questions import ASKED, Pupil, RouteQuestion, SharedDriving
from fedwatt.privacy.fixed_point import Layout
from fedwatt.runs.config import RunConfig
from fedwatt.runs.routes import route_board
from fedwatt.telemetry.store import read_vehicle
from fedwatt.windows.client import prepared

ASKS = "asks"  # the value of a question that says what of routes it asks for
FIELD = "driving"  # the value that names the driving field it is about, by its digest


def driving_file(folder: Path, digest: str) -> Path:
    """Where the memory of a run has the driving field of this digest."""
    return folder / f"driving-{digest}.json"


class RoutesOnBoard:
    """A vehicle's answers about routes."""

    def __init__(self, folder: Path, state: Path, hills: HillsOnBoard) -> None:
        self.folder, self.state, self.hills = folder, state, hills
        self._board: tuple[object, RouteBoard] | None = None
        """The vehicle's passes with these hills and settings."""
        self._pupil: tuple[object, Pupil] | None = None
        """The same with a driving field."""

    def masked(self, question: Content, config: RunConfig, secrets: Secrets) -> Content:
        """The sums that a question asks for, under masks."""
        terms = secrets.terms_about_places("routes", config.terrain.minimum_vehicles)
        asks, room = str(value(question, ASKS, str)), config.deploy.room(terms.called)
        if asks in DRIVING:
            places = DrivingQuestion.read(asks, question.arrays, config.terrain)
            layout = Layout(places.fields, vehicles=room)
            return secrets.masked(
                question, layout, places.answer(self.board(question, config).sums)
            )
        routes = RouteQuestion.read(asks, question.arrays)
        layout = Layout(routes.fields, vehicles=room)
        answer = routes.answer(self.pupil(question, config))
        if asks == [*ASKED][-1]:  # trips need memory, which training wants back
            self._board = self._pupil = None
        return secrets.masked(question, layout, answer)

    def take(self, question: Content, config: RunConfig) -> Content:
        """Keep the driving field of the fleet."""
        least, grid = config.terrain.minimum_vehicles, Grid(cell_m=config.terrain.cell_m)
        shared = SharedDriving.read(question.arrays, grid, least)
        run = str(value(question, "run", str))
        file = driving_file(run_folder(self.state, run), shared.digest)
        forget_old_runs(self.state, run)
        mark(file.parent)
        for other in file.parent.glob(driving_file(file.parent, "*").name):
            other.unlink(missing_ok=True)  # or a server that changes its mind would fill the disk
        write_bytes(file, save_arrays(shared.arrays, {}))
        flush(file.parent)
        return Content({"field": shared.digest})

    def board(self, question: Content, config: RunConfig) -> RouteBoard:
        """The vehicle's passes; read once for as long as hills and settings stay."""
        about = hills_of(question.values), config.terrain, config.data
        if about[0] is None:
            raise DataError("the question lacks the hills that this run learned")
        if self._board is None or self._board[0] != about:
            vehicle = prepared(read_vehicle(self.folder), config.data)
            self._board = about, route_board(vehicle, config, self.hills.field(*about[0]))
        return self._board[1]

    def pupil(self, question: Content, config: RunConfig) -> Pupil:
        """The vehicle with the driving field that a question names; DataError if it has none."""
        board, digest = self.board(question, config), str(value(question, FIELD, str))
        about = board, digest
        if self._pupil is None or self._pupil[0] != about:
            self._pupil = about, Pupil(board, self._field(question, digest, config))
        return self._pupil[1]

    def _field(self, question: Content, digest: str, config: RunConfig) -> SharedDriving:
        if not digest.isalnum() or len(digest) > 64:
            raise DataError("the question names no driving field")
        file = driving_file(run_folder(self.state, str(value(question, "run", str))), digest)
        try:
            arrays, _ = load_arrays(file.read_bytes())
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as problem:
            raise DataError(
                f"the driving field of this run is not on board ({problem})"
            ) from problem
        grid = Grid(cell_m=config.terrain.cell_m)
        return SharedDriving.read(arrays, grid, config.terrain.minimum_vehicles)
