"""The styles of a fleet: every exchange between vehicles and server, one after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
from torch import Tensor

from examples.driving_styles.directions import StyleSums, directions
from examples.driving_styles.vehicle_sums import driving, fleet_scale, motion_features, scale_sums
from examples.driving_styles.verdict import Excess, adjusted_rand, excess, explained
from fedwatt.errors import DataError, SettingError
from fedwatt.federation import Federation
from fedwatt.models import Model
from fedwatt.randomness import generator
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows import FEATURES, Client

MOST_CLUSTERS: Final = 6
FEWEST_VEHICLES: Final = 3
"""Vehicles whose sum may be known: fewer make no cluster, and nothing is said about them."""
CHANCE: Final = 0.05
AGREE: Final = 0.6
"""Least mean adjusted Rand index over pairs of seeds for clusters to count as found again."""
SHOWN: Final = 4


@dataclass(frozen=True)
class Styles:
    """What was found.

    method         whose models the vehicles were seen through
    seeds          of these models
    clusters       how many styles; 1 where there are none beyond chance, or seeds disagree
    candidates     the number of clusters that stands out most, whether beyond chance or not
    above          standard deviations that it explains above an even spread, for each seed
    probability    of as much in an even spread without clusters; the largest over seeds
    agreement      mean adjusted Rand index over pairs of seeds; None with one seed
    members        vehicle -> its style, from 0, with the first seed's model
    sizes          vehicles of each style
    profile        what of a feature -> its mean over the vehicles of each style
    """

    method: str
    seeds: tuple[int, ...]
    clusters: int
    candidates: int
    above: tuple[float, ...]
    probability: float
    agreement: float | None
    members: Mapping[str, int]
    sizes: tuple[int, ...]
    profile: Mapping[str, tuple[float, ...]]

    def to_json(self) -> dict[str, Any]:
        """Plain lists, texts and numbers."""
        return asdict(self)

    @staticmethod
    def from_json(table: Mapping[str, Any]) -> "Styles":
        """Inverse of `to_json`, after a JSON file has made lists of tuples."""
        lists = {n: tuple(v) for n, v in table.items() if isinstance(v, list)}
        profile = {name: tuple(values) for name, values in table["profile"].items()}
        return Styles(**{**table, **lists, "profile": profile})

    @property
    def sentence(self) -> str:
        """The answer, with its numbers."""
        chance = f"p = {self.probability:.2f} against an even spread"
        agree = "one seed cannot tell whether others agree"
        if self.agreement is not None:
            agree = f"adjusted Rand index of {self.agreement:.2f} between seeds"
        if self.clusters > 1:
            return f"{self.clusters} driving styles beyond chance ({chance}; {agree})."
        best = f"the clearest grouping, into {self.candidates}, has {chance}; {agree}"
        if self.probability <= CHANCE:
            return f"No driving styles that all seeds see: {best}."
        return f"No driving styles beyond chance: {best}."


def find_styles(
    federation: Federation,
    weights: Tensor,
    method: str,
    *,
    max_clusters: int = MOST_CLUSTERS,
    min_vehicles: int = FEWEST_VEHICLES,
    on_seed: Callable[[int], None] = lambda seed: None,
) -> Styles:
    """Styles of the vehicles that train, as seen by global models `weights` [R, D] of all seeds.

    At most `max_clusters`, of at least `min_vehicles` vehicles each. `on_seed` is called before
    each seed's model is used.
    """
    model = federation.model
    clients = [c for c in federation.fleet.clients if not c.held_out]
    most = min(max_clusters, len(clients) // min_vehicles)
    if most < 2:
        raise DataError(
            f"{len(clients)} vehicles make no two styles of at least {min_vehicles} vehicles each."
        )
    if not model.has_representation:
        raise SettingError(
            "Styles are read off a hidden layer, and the model does not tell its own. Train an "
            "mlp, gru or lstm, or a module of Linear and ReLU layers."
        )
    seen: list[Excess] = []
    groups: list[list[IntArray]] = []
    for seed, own in zip(federation.seeds, weights, strict=True):
        on_seed(seed)
        points = places(clients, model, own[: model.layout.size].cpu())
        rng = generator(seed, "styles")
        spread = points.std(axis=0)
        found = explained(points, spread, most, rng, fewest=min_vehicles)
        seen.append(excess(found, len(points), spread, rng, fewest=min_vehicles))
        alone = np.zeros(len(points), dtype=np.int64)
        groups.append([alone if c is None else c.of(points) for c in found.clusterings])
    best = int(np.mean([one.above for one in seen], axis=0).argmax())
    chosen = [own[best] for own in groups]
    pairs = [adjusted_rand(one, other) for one, other in combinations(chosen, 2)]
    agreement = float(np.mean(pairs)) if pairs else None
    probability = max(one.probability for one in seen)
    there = probability <= CHANCE and (agreement is None or agreement >= AGREE)
    members = chosen[0] if there else np.zeros(len(clients), dtype=np.int64)
    return Styles(
        method=method,
        seeds=tuple(federation.seeds),
        clusters=int(members.max()) + 1,
        candidates=best + 2,
        above=tuple(float(one.above[best]) for one in seen),
        probability=probability,
        agreement=agreement,
        members={client.name: int(own) for client, own in zip(clients, members, strict=True)},
        sizes=tuple(np.bincount(members).tolist()),
        profile=_profile(clients, members),
    )


def places(clients: Sequence[Client], model: Model, weights: Tensor) -> FloatArray:
    """Where each vehicle is along the directions in which vehicles differ, [N, q]."""
    scale = fleet_scale(np.sum([scale_sums(one) for one in clients], axis=0), len(clients))
    seen = [driving(one, model, weights, scale) for one in clients]
    # A speed that nobody drives leaves powers that hang together; the pseudo-inverse bears it.
    gram = np.sum([one.gram for one in seen], axis=0)
    beta = np.linalg.pinv(gram, hermitian=True) @ np.sum([one.cross for one in seen], axis=0)
    sums = [StyleSums.of(one.at_equal_speed(beta)) for one in seen]
    found = directions(StyleSums.total(sums), len(clients))
    return np.stack([found.place(one.mean) for one in sums])


def _profile(clients: Sequence[Client], members: IntArray) -> dict[str, tuple[float, ...]]:
    """Return the means and spreads of features by style, over its vehicles."""
    features = clients[0].features
    told: dict[str, FloatArray] = {}
    for place in np.flatnonzero(motion_features(features)).tolist():
        name = features[place]
        unit = FEATURES[features[place]].unit
        for what in ("center", "scale"):
            own = [getattr(one.scaler, what)[place] for one in clients]
            told[f"{'mean' if what == 'center' else 'spread'} of {name}, {unit}"] = np.array(own)
    count = int(members.max()) + 1
    by_style = {
        name: np.array([values[members == one].mean() for one in range(count)])
        for name, values in told.items()
    }
    # By how far styles are apart, in standard deviations over vehicles.
    order = sorted(told, key=lambda n: -float(by_style[n].std() / (told[n].std() or 1.0)))
    return {name: tuple(by_style[name].tolist()) for name in order[:SHOWN]}
