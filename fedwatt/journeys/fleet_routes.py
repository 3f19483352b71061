"""What a fleet knows about routes, and how its vehicles teach it: sums at every step.

1. How the fleet drives each place and heading (`driving_exchange`).
2. Coefficients of energy and of duration (`mixed_effects`), a dozen exchanges each.
3. How far off they were (`route_bars`), counted once.

`learn_routes` goes through the steps with simulated vehicles; a real fleet answers the same
questions (`fedwatt.deploy`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedwatt.data.trip import FloatArray
from fedwatt.errors import DataError
from fedwatt.journeys.driving_exchange import AddUp, learn_driving, totals_by
from fedwatt.journeys.driving_field import DrivingSums, add, on_board, published
from fedwatt.journeys.mixed_effects import (
    FleetEffects,
    fit,
    own_effects,
    sum_fields,
    unit_fields,
)
from fedwatt.journeys.route_bars import BINS, MIDDLES_KM, Bars, error_counts, quantiles
from fedwatt.journeys.route_board import (
    Learnable,
    RouteBoard,
    judged,
    left_out_errors,
    mass_factor,
)
from fedwatt.journeys.route_features import NAMES
from fedwatt.journeys.route_model import TARGETS, Coefficients, RouteModel
from fedwatt.journeys.under_way import (
    CORRECTION_FIELDS,
    REWEIGHTINGS,
    USUAL,
    Moments,
    corrected,
)
from fedwatt.terrain.field import Field
from fedwatt.terrain.grid import Grid
from fedwatt.terrain.masked import Fields
from fedwatt.terrain.settings import TerrainSettings

SPREADS = {"energy": 5.0, "duration": 2.0}
"""τ to begin with, in Wh or seconds a km of σ, for columns of size 1."""
JUDGED = ("insider", "newcomer", "unknown")


@dataclass(frozen=True, eq=False)
class FleetRoutes:
    """What the server has in the end, and every vehicle gets.

    driving     the cells that at least k vehicles drive
    effects     coefficients by target
    counts      errors by target and circumstance (`JUDGED`), counted in bins
    correction  κ, q and c of `under_way`
    vehicles    how many taught it
    hills       the elevations that the fleet publishes, for newcomers; None: it has none
    """

    cell_m: float
    driving: DrivingSums
    effects: Mapping[str, FleetEffects]
    counts: Mapping[str, Mapping[str, FloatArray]]
    correction: FloatArray
    vehicles: int
    hills: Field | None = None

    @property
    def grid(self) -> Grid:
        """The grid of its cells."""
        return Grid(cell_m=self.cell_m)

    def newcomer(self, mass_kg: float, name: str = "", capacity_wh: float = 0.0) -> RouteModel:
        """The model of a vehicle with no trips of its own: the fleet's coefficients, its mass."""
        nothing = RouteBoard((), self.hills, mass_kg, self.grid)
        return self.personal(nothing, name, contributed=False, capacity_wh=capacity_wh)

    def personal(
        self,
        board: RouteBoard,
        name: str,
        *,
        contributed: bool = True,
        capacity_wh: float = 0.0,
    ) -> RouteModel:
        """A vehicle's own model; `contributed` says whether its passes are in the fleet's."""
        field = on_board(self.driving, board.sums, board.grid, contributed=contributed)
        own = board.inside(field)
        parts = {target: self._personal(target, own, contributed) for target in TARGETS}
        return RouteModel(
            vehicle=name,
            trips=len(own.metres),
            fleet_vehicles=self.vehicles,
            mass_kg=board.mass_kg,
            capacity_wh=capacity_wh,
            field=field,
            coefficients={target: found for target, (found, _) in parts.items()},
            bars={target: bars for target, (_, bars) in parts.items()},
            correction=self.correction,
            hills=board.hills,
        )

    def _personal(
        self, target: str, own: Learnable, contributed: bool
    ) -> tuple[Coefficients, Bars]:
        fleet, counts = self.effects[target], self.counts[target]
        trips = own.of(target)
        mine = own_effects(fleet, trips)
        errors = np.zeros(len(MIDDLES_KM) * BINS)
        if len(trips.y):
            errors = error_counts(left_out_errors(fleet, mine, trips), own.metres / 1000)
        nobody = np.zeros_like(errors)
        base = counts["insider" if contributed else "newcomer"]
        beta = (fleet.mean + mine.beta) * mine.scale / fleet.unit
        beta = beta * mass_factor(target, own.mass_kg)
        bars = Bars(
            quantiles(base, errors),
            quantiles(counts["insider"], nobody),
            quantiles(counts["unknown"], nobody),
            np.array(fleet.noise),
        )
        return Coefficients(beta, mine.scale), bars


def plainly(
    fields: Fields, vehicles: int, answers: Iterable[Mapping[str, FloatArray]]
) -> dict[str, FloatArray]:
    """Answers added up without masks."""
    total = {name: np.zeros(size) for name, (size, _) in fields.items()}
    for answer in answers:
        for name in total:
            total[name] = total[name] + answer[name]
    return total


def judged_fields() -> Fields:
    """What `route_board.judged` adds."""
    size = len(MIDDLES_KM) * BINS
    return {name: (size, 2.0**24) for name in JUDGED}


def learn_routes(
    boards: Mapping[str, RouteBoard],
    settings: TerrainSettings,
    *,
    add_up: AddUp | None = None,
    before: DrivingSums | None = None,
    hills: Field | None = None,
) -> FleetRoutes:
    """The routes that a simulated fleet learns; `hills` are those that it publishes.

    `add_up` adds answers as a secure sum does, over `settings.area`; without it cells are added as
    they are. `before` are driving sums of an earlier exchange, which count `settings.forget`.
    """
    boards = {name: board for name, board in boards.items() if board.taught}
    if len(boards) < max(2, settings.minimum_vehicles):
        raise DataError(
            f"{len(boards)} vehicles have trips with positions, and at least "
            f"{max(2, settings.minimum_vehicles)} are needed to share how a fleet drives."
        )
    driving = _driving(boards, settings, add_up)
    if before is not None:
        driving = add([before, driving], settings.forget)
    least = settings.minimum_vehicles
    lessons = [board.lessons(driving, hills, least) for board in boards.values()]
    adding = add_up or plainly
    effects, counts = {}, {}
    for target in TARGETS:

        def total(fleet: FleetEffects | None, target: str = target) -> Mapping[str, FloatArray]:
            fields = unit_fields(len(NAMES)) if fleet is None else sum_fields(len(NAMES))
            answers = (one.inside.answer(target, fleet) for one in lessons)
            return adding(fields, len(lessons), answers)

        fleet, *equations = fit(total, len(NAMES), SPREADS[target])
        effects[target] = fleet
        off = (judged(one, target, fleet, (equations[0], equations[1])) for one in lessons)
        counts[target] = dict(adding(judged_fields(), len(lessons), off))
    learned = FleetRoutes(
        settings.cell_m, driving, effects, counts, np.array(USUAL), len(boards), hills
    )
    return replace(learned, correction=_correction(learned, boards, adding))


def _correction(
    learned: FleetRoutes, boards: Mapping[str, RouteBoard], adding: AddUp
) -> FloatArray:
    """κ, q and c, which the vehicles learn from moments under way in their training trips."""
    seen = [own_moments(learned, board) for board in boards.values()]
    found = learned.correction
    for _ in range(REWEIGHTINGS):
        sums = (one.sums(found) for one in seen)
        found = corrected(adding(CORRECTION_FIELDS, len(seen), sums))
    return found


def own_moments(learned: FleetRoutes, board: RouteBoard) -> Moments:
    """Moments under way in a vehicle's training trips, forecast with its own coefficients."""
    own = learned.personal(board, "")
    return board.under_way(own.field, {name: own.coefficients[name].beta for name in TARGETS})


def _driving(
    boards: Mapping[str, RouteBoard], settings: TerrainSettings, add_up: AddUp | None
) -> DrivingSums:
    sums = {name: board.sums for name, board in boards.items()}
    if add_up is None and not settings.noise_multiplier:
        return published(list(sums.values()), settings.minimum_vehicles)
    found, _ = learn_driving(totals_by(add_up or plainly, sums), frozenset(sums), settings)
    return found
