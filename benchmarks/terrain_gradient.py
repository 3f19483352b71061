"""The field as ordinary model parameters, trained by gradient with the network, on VED.

    python benchmarks/terrain_gradient.py --fleet FLEET --seeds 1,2,3

Elevations of all nodes are parameters like weights: a second's climb is the difference of two
bilinear readings of them, and the loss of a window goes back through climb into the nodes around
it. FedAvg as in terrain_ved.py (20 rounds, half of the vehicles, MLP 64-32, rate 0.1/√(t+1)); nodes
have a rate of their own and are averaged over the vehicles that drove them. Beside it the same
training with the least-squares field, fixed, and with gradient from there on. One plain loop over
vehicles. Fills results/terrain_gradient.json; about 4 minutes of one core a row and seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.terrain_cells import (
    FIXED,
    TRAINING,
    Record,
    Rows,
    Task,
    balanced,
    data_settings,
    parser,
    run,
    vehicles_of,
)
from fedwatt.elevation.climb import STANDING_MPS, with_terrain
from fedwatt.elevation.field import Field, find
from fedwatt.elevation.learn import learn
from fedwatt.elevation.positions import trusted_positions
from fedwatt.engine.batches import Draw
from fedwatt.federation.participation import participants
from fedwatt.randomness import generator
from fedwatt.telemetry import Vehicle
from fedwatt.windows import Client, build_fleet

RECORD = Path(__file__).resolve().parents[1] / "results" / "terrain_gradient.json"
ALL = replace(FIXED, minimum_vehicles=1, private=False)
CASES = {
    # name: (start from the least-squares field, rate of the nodes)
    "least squares, fixed": (True, 0.0),
    "gradient from least squares, rate 10": (True, 10.0),
    "gradient from least squares, rate 100": (True, 100.0),
    "gradient from level ground, rate 30": (False, 30.0),
    "gradient from level ground, rate 100": (False, 100.0),
    "gradient from level ground, rate 300": (False, 300.0),
}
WINDOW = 60


class Driven:
    """One vehicle's series, and where each second reads the field."""

    def __init__(self, vehicle: Vehicle, client: Client, field: Field, window: int) -> None:
        nodes, shares, joined = [], [], []
        for trip in vehicle.trips:
            if trip.seconds < window:
                continue
            latitude, longitude, trusted = trusted_positions(trip)
            keys, weights = field.grid.corners(latitude, longitude)
            at, known = find(field.keys, keys)
            sure = trusted & (known | (weights == 0)).all(axis=1)
            nodes.append(at)
            shares.append(np.where(known & sure[:, None], weights, 0.0))
            rolling = np.nan_to_num(trip.channels["speed_mps"]) >= STANDING_MPS
            # A second climbs if it and the one before are known and the wheels roll.
            joined.append(sure & np.concatenate([[False], sure[:-1]]) & rolling)
        self.nodes = torch.from_numpy(np.concatenate(nodes))
        self.shares = torch.from_numpy(np.concatenate(shares)).float()
        self.joined = torch.from_numpy(np.concatenate(joined))
        self.client = client
        self.plain = torch.from_numpy(client.series[:, :-2].copy())
        assert client.scaler is not None  # it was built from trips
        self.scale = torch.from_numpy(client.scaler.scale[-2:].copy()).float()
        self.center = torch.from_numpy(client.scaler.center[-2:].copy()).float()
        self.touched = torch.zeros(field.nodes)
        self.touched[self.nodes[self.shares > 0]] = 1.0

    def inputs(self, ends: Tensor, heights: Tensor) -> Tensor:
        """Windows [batch, seconds · features] as a network sees them, climb from `heights`."""
        seconds = ends[:, None] + torch.arange(-WINDOW, 1)
        seconds = seconds.clamp(min=0)
        height = (heights[self.nodes[seconds]] * self.shares[seconds]).sum(-1)
        rise = (height[:, 1:] - height[:, :-1]) * self.joined[seconds[:, 1:]]
        ways = torch.stack([rise.clamp(min=0), (-rise).clamp(min=0)], dim=-1)
        climb = (ways - self.center) / self.scale
        return torch.cat([self.plain[seconds[:, 1:]], climb], dim=-1).flatten(1)


def forward(weights: Sequence[Tensor], inputs: Tensor) -> Tensor:
    one, two, three = (weights[i : i + 2] for i in (0, 2, 4))
    hidden = torch.relu(torch.relu(inputs @ one[0].T + one[1]) @ two[0].T + two[1])
    return (hidden @ three[0].T + three[1]).squeeze(-1)


def initial(inputs: int, seed: int) -> list[Tensor]:
    rng = generator(seed, "initial model")
    shapes = [(64, inputs), (64,), (32, 64), (32,), (1, 32), (1,)]
    fans = [inputs, inputs, 64, 64, 32, 32]
    bounds = [1 / np.sqrt(fan) for fan in fans]
    return [
        torch.from_numpy(rng.uniform(-b, b, shape)).float()
        for shape, b in zip(shapes, bounds, strict=True)
    ]


def local(
    one: Driven,
    weights: list[Tensor],
    heights: Tensor,
    seed: int,
    round: int,
    rates: tuple[float, float],
) -> tuple[list[Tensor], Tensor]:
    """A vehicle's weights and heights after one pass over its training windows."""
    ends = torch.from_numpy(one.client.ends["train"])
    labels = torch.from_numpy(one.client.labels["train"])
    steps = -(-len(ends) // TRAINING.batch)
    draw = Draw(seed, round, one.client.name, len(ends), end=steps, batch=TRAINING.batch)
    own = [w.clone().requires_grad_() for w in weights]
    ground = heights.clone().requires_grad_(rates[1] > 0)
    for batch in draw.order().astype(np.int64):
        chosen = torch.from_numpy(batch[batch >= 0])
        loss = ((forward(own, one.inputs(ends[chosen], ground)) - labels[chosen]) ** 2).mean()
        leaves = [*own, ground] if rates[1] > 0 else own
        gradients = torch.autograd.grad(loss, leaves)
        with torch.no_grad():
            for leaf, gradient in zip(leaves, gradients, strict=True):
                leaf -= (rates[1] if leaf is ground else rates[0]) * gradient
    return [w.detach() for w in own], ground.detach()


def errors(
    fleet: Sequence[Driven], weights: list[Tensor], heights: Tensor, split: str
) -> dict[str, float]:
    found = {}
    with torch.no_grad():
        for one in fleet:
            ends = torch.from_numpy(one.client.ends[split])
            predicted = torch.cat(
                [forward(weights, one.inputs(part, heights)) for part in torch.split(ends, 2000)]
            ).numpy()
            error = one.client.energy_wh(predicted) - one.client.energy_wh(one.client.labels[split])
            found[one.client.name] = float(np.sqrt(np.mean(error**2)))
    return found


def gradient_rows(folder: Path, seed: int, name: str) -> Rows:
    start, node_rate = CASES[name]
    vehicles, data = vehicles_of(folder), data_settings(seed, "base, terrain")
    field = learn(vehicles, ALL, data).shared
    climbing = [with_terrain(vehicle, field) for vehicle in vehicles]
    clients = {c.name: c for c in balanced(build_fleet(climbing, data, "ved"), seed).clients}
    fleet = [Driven(vehicle, clients[vehicle.name], field, data.window) for vehicle in vehicles]
    heights = torch.from_numpy(field.elevation_m).float() * (1.0 if start else 0.0)
    weights = initial(WINDOW * clients[vehicles[0].name].series.shape[1], seed)
    best = (np.inf, weights, heights)
    for round in range(TRAINING.rounds):
        fade = float(1 / np.sqrt(round + 1))
        called = participants(seed, round, np.ones(len(fleet), bool), TRAINING.participation)
        replies = [
            (
                fleet[k],
                *local(fleet[k], weights, heights, seed, round, (0.1 * fade, node_rate * fade)),
            )
            for k in called
        ]
        sizes = torch.tensor([float(len(one.client.ends["train"])) for one, *_ in replies])
        shares = sizes / sizes.sum()
        weights = [
            sum(s * own[i] for s, (_, own, _) in zip(shares, replies, strict=True))
            for i in range(len(weights))
        ]
        moved = sum(one.touched * (ground - heights) for one, _, ground in replies)
        heights = heights + moved / sum(one.touched for one, *_ in replies).clamp(min=1)
        if (round + 1) % TRAINING.evaluate_every == 0:
            validation = errors(fleet, weights, heights, "validation")
            overall = float(np.sqrt(np.mean(np.square(list(validation.values())))))
            if overall < best[0]:
                best = (overall, weights, heights)
    return {
        f"{name}, {split}": errors(fleet, best[1], best[2], split)
        for split in ("validation", "test")
    }


def tasks(folder: Path, seeds: Sequence[int]) -> Iterator[Task]:
    for seed in seeds:
        for name in CASES:
            rows = tuple(f"{name}, {split}" for split in ("validation", "test"))
            yield Task(rows, seed, gradient_rows, (folder, seed, name))


def main() -> None:
    chosen = parser(__doc__, RECORD).parse_args()
    seeds = [int(part) for part in chosen.seeds.split(",")]
    run(list(tasks(chosen.fleet, seeds)), Record(chosen.record), chosen.workers)


if __name__ == "__main__":
    main()
