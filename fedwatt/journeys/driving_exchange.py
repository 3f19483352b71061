"""Learn the shared driving field where only totals over vehicles can be seen.

1. Vehicles say which places of the service area they drive; places of fewer than k vehicles are
   left out.
2. They say in which of the eight headings they drive each place that is left.
3. They hand up the seven sums of each place and heading that at least k of them drive.

Every message has a length that follows from the area and from totals, never from one vehicle, so
that under masks (`fedwatt.privacy`) it says nothing. Whoever drops out is asked no more, and if a
cell then has fewer than k vehicles the total is not used: counting goes on.

With noise, vehicles are asked for at most `most_nodes` places, and for sums clipped to a length;
the server adds Gaussian noise of `noise_multiplier` times these bounds, as for hills (`noise`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np

from fedwatt.data.trip import FloatArray
from fedwatt.errors import RunError
from fedwatt.journeys.driving_field import NO_PASSES, SUMS, DrivingSums
from fedwatt.journeys.route import HEADINGS
from fedwatt.terrain.field import find, spread
from fedwatt.terrain.grid import Grid, IntArray
from fedwatt.terrain.masked import LARGEST, Fields
from fedwatt.terrain.noise import SURELY, Draws, seeded
from fedwatt.terrain.settings import TerrainSettings

CLIP_M = 20_000.0
"""Length of one vehicle's sums where there is noise: about as many metres of one cell."""


@dataclass(frozen=True, eq=False)
class DrivingQuestion:
    """What vehicles are asked to add up: "places", "headings" or "sums", over `keys`."""

    kind: str
    keys: IntArray
    settings: TerrainSettings

    @property
    def fields(self) -> Fields:
        """What an answer holds; the same for every vehicle."""
        counts = {"vehicles": (len(self.keys), 1.0)}
        if self.kind != "sums":
            return counts
        noise = self.settings.noise_multiplier
        sums = {name: (len(self.keys), CLIP_M if noise else LARGEST) for name in SUMS}
        return sums if noise else counts | sums

    def answer(self, own: DrivingSums) -> dict[str, FloatArray]:
        """What a vehicle adds."""
        noise = self.settings.noise_multiplier
        if noise:
            own = _bounded(own, self.settings.most_nodes)
        if self.kind == "places":
            driven = np.unique(own.keys // HEADINGS)
            return {"vehicles": _marked(driven, self.keys)}
        if self.kind == "headings":
            return {"vehicles": _marked(own.keys, self.keys)}
        inside = own.within(self.keys)
        at, _ = find(self.keys, inside.keys)
        sums = np.zeros((len(self.keys), len(SUMS)))
        sums[at] = inside.sums
        if not noise:
            answer = dict(zip(SUMS, sums.T, strict=True))
            return {"vehicles": _marked(inside.keys, self.keys), **answer}
        sums *= min(1.0, CLIP_M / max(float(np.sqrt((sums**2).sum())), 1e-300))
        return dict(zip(SUMS, sums.T, strict=True))


def _marked(driven: IntArray, keys: IntArray) -> FloatArray:
    at, inside = find(keys, driven)
    return spread(np.ones(int(inside.sum())), at[inside], len(keys))


def _bounded(own: DrivingSums, most_nodes: int) -> DrivingSums:
    """The cells of the places that a vehicle drives most, at most so many."""
    places, at = np.unique(own.keys // HEADINGS, return_inverse=True)
    metres = np.bincount(at, own.sums[:, 0], len(places))
    kept = np.sort(places[np.argsort(-metres, kind="stable")[:most_nodes]])
    return own.only(find(kept, own.keys // HEADINGS)[1])


DrivingTotals = Callable[
    [DrivingQuestion, frozenset[str]], tuple[Mapping[str, FloatArray], frozenset[str]]
]
"""The totals of a question over the vehicles named, and whose answers are in them."""
AddUp = Callable[[Fields, int, Iterable[Mapping[str, FloatArray]]], Mapping[str, FloatArray]]
"""Adds up answers as a secure sum does (`fedwatt.privacy.fixed_point.add_up`)."""


def totals_by(add_up: AddUp, vehicles: Mapping[str, DrivingSums]) -> DrivingTotals:
    """Totals over simulated vehicles."""

    def totals(
        question: DrivingQuestion, present: frozenset[str]
    ) -> tuple[Mapping[str, FloatArray], frozenset[str]]:
        answers = (question.answer(vehicles[name]) for name in sorted(present))
        return add_up(question.fields, len(present), answers), present

    return totals


def learn_driving(
    totals: DrivingTotals,
    vehicles: frozenset[str],
    settings: TerrainSettings,
    draws: Draws | None = None,
) -> tuple[DrivingSums, frozenset[str]]:
    """The sums of cells that at least k of the vehicles drive, and whose passes are in them.

    No cells where there are fewer than k vehicles, or where k never share a place.
    """
    least, present = settings.minimum_vehicles, vehicles
    noise = draws or seeded(settings.noise_seed)
    while len(present) >= max(2, least):
        keys = settings.service_area.nodes(Grid(cell_m=settings.cell_m))
        for kind in ("places", "headings"):
            total, present = totals(DrivingQuestion(kind, keys, settings), present)
            keys = keys[_enough(total["vehicles"], kind, settings, noise)]
            if kind == "places":
                keys = (keys[:, None] * HEADINGS + np.arange(HEADINGS)).ravel()
        if not len(keys):
            return NO_PASSES, frozenset()
        before = present
        total, present = totals(DrivingQuestion("sums", keys, settings), present)
        sums = np.stack([total[name] for name in SUMS], axis=1)
        if settings.noise_multiplier:
            return _without_noise_alone(keys, sums, settings, noise), present
        if total["vehicles"].min() > least - 0.5:
            _refuse_impossible(sums, len(present))
            return DrivingSums(keys, sums, np.round(total["vehicles"]).astype(np.int64)), present
        if present == before:
            raise RunError("The vehicles' counts and sums do not agree: one is at fault.")
    raise RunError(f"{len(present)} vehicles are left, and {max(2, least)} must drive a place.")


def _enough(
    counts: FloatArray, kind: str, settings: TerrainSettings, draws: Draws
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    least = settings.minimum_vehicles - 0.5
    if settings.noise_multiplier:
        # A vehicle drives a place in all eight headings at most.
        cells = settings.most_nodes * (HEADINGS if kind == "headings" else 1)
        deviation = settings.noise_multiplier * sqrt(cells)
        counts = counts + deviation * draws(f"driving {kind}").standard_normal(len(counts))
        least += SURELY * deviation
    return counts > least


def _without_noise_alone(
    keys: IntArray, sums: FloatArray, settings: TerrainSettings, draws: Draws
) -> DrivingSums:
    """The sums with noise, of the cells whose metres and seconds noise alone does not explain."""
    deviation = settings.noise_multiplier * CLIP_M
    noise = draws("driving sums").standard_normal(sums.size)
    sums = sums + deviation * noise.reshape(sums.shape)
    sure = (sums[:, :3] > SURELY * deviation).all(axis=1)
    sums = np.maximum(sums[sure], 0.0)
    least = np.full(int(sure.sum()), settings.minimum_vehicles, dtype=np.int64)
    return DrivingSums(keys[sure], sums, least)


def _refuse_impossible(sums: FloatArray, vehicles: int) -> None:
    """Raise unless all sums are at least 0, but for roundings."""
    if sums.min() < -1e-6 * vehicles:
        raise RunError(
            f"A sum of how the fleet drives a cell is {sums.min():g}, which cannot be. One of the "
            "vehicles is at fault, and masks hide which."
        )
