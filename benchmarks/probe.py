"""The roughness probe beside one forward pass a point, and what it adds to a round.

    python benchmarks/probe.py [--repeats 11] [--out results/performance_probe.json]

Three vehicles with 1,920, 20,000 and 200,000 windows each; about three minutes on two quiet cores.

The paper's overhead is (Time(method) - Time(FedAvg)) / Time(FedAvg) of the vehicles' own time a
round, with a probe every R rounds: Time = ((R - 1)·T_without + T_with) / R.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.recipe import FEATURES, WINDOW, Recipe, interleaved, probed, rounds_of
from fedwatt.engine.batches import drawn_directions
from fedwatt.federation import Federation
from fedwatt.methods import get
from fedwatt.methods.roughness import RoughnessProximal, loss_slices, unit
from fedwatt.methods.rule import Batch
from fedwatt.models import MLP, Model
from fedwatt.models.model import squared
from fedwatt.threads import threads

DEFAULT_PROBE = (10, 100, 128)
WINDOWS = (1_920, 20_000, 200_000)
"""Windows a vehicle has."""


def drawn(model: Model, *, directions: int, batch: int) -> tuple[Tensor, Tensor, Batch]:
    """Return (weights, directions, windows) of one vehicle at the start of a training."""
    rng = np.random.default_rng(0)
    weights = model.initial(rng).float()
    lines = torch.from_numpy(rng.standard_normal((directions, model.layout.size)))
    windows = torch.from_numpy(rng.standard_normal((batch, WINDOW, FEATURES), dtype=np.float32))
    labels = torch.from_numpy(rng.standard_normal(batch, dtype=np.float32))
    return weights, lines, Batch(windows, labels)


def naive_slices(
    model: Model, weights: Tensor, directions: Tensor, s: Tensor, batch: Batch
) -> Tensor:
    """φ [M, m+1] point by point: put the weights together, go forward, take the mean loss."""
    weights, windows, labels = weights.double(), batch.windows.double(), batch.labels.double()
    slices = torch.empty(len(directions), len(s), dtype=torch.float64)
    for i, direction in enumerate(unit(directions)):
        for j, offset in enumerate(s.tolist()):
            predicted = model.predict(weights + offset * direction, windows)
            slices[i, j] = squared(predicted, labels).mean()
    return slices


def bench_probe(*, repeats: int = 7) -> dict[str, Any]:
    """Time one vehicle's probe at the paper's defaults, in float64 on one core, both ways."""
    rule = RoughnessProximal()
    model = MLP(WINDOW, FEATURES)
    weights, lines, batch = drawn(model, directions=rule.directions, batch=rule.probe_batch)
    s = torch.linspace(-rule.radius, rule.radius, rule.points + 1, dtype=torch.float64)
    results: dict[str, Tensor] = {}

    def naive() -> None:
        results["naive"] = naive_slices(model, weights, lines, s, batch)

    def ours() -> None:
        results["probe"] = loss_slices(model, squared, weights, unit(lines), s, batch)

    with torch.no_grad(), threads(1):
        seconds = interleaved({"naive": naive, "probe": ours}, repeats=repeats)
    apart = float((results["naive"] - results["probe"]).abs().max())
    return {
        "machine": machine() | {"threads": 1},
        "passes": rule.directions * (rule.points + 1),
        "seconds": seconds,
        "times_faster": seconds["naive"] / seconds["probe"],
        "largest_difference": apart,
    }


def bench_components(windows: int, *, repeats: int = 3) -> dict[str, Any]:
    """Measure a round of three vehicles: its parts, and the probe's amortised share."""
    recipe = Recipe(vehicles=3, participants=3, windows=windows)
    federation = Federation(recipe.fleet(), training=recipe.training, device="cpu")
    method = get("fo-ri-fedavg", beta_kappa=0.1, probe_every=1)
    state = federation.start(method)[0]
    parts: list[dict[str, float]] = []

    def probing() -> None:
        drawn_directions.cache_clear()
        parts.append(dict(federation.advance(method, state)[1].seconds))

    probe = ProbingRound(federation, *DEFAULT_PROBE)
    rounds: dict[str, Callable[[], None]] = {
        "fedavg": rounds_of(federation, get("fedavg")),
        "parts": probing,
        "probe": probe,
    }
    seconds = interleaved(rounds, repeats=repeats)
    probe_s = float(np.median(probe.probe_s[1:]))
    names = [name for name in parts[0] if name not in ("evaluation", "total")]
    return {
        "windows": windows,
        "seconds_a_round": {"fedavg": seconds["fedavg"]},
        "parts_s": {name: float(np.median([part[name] for part in parts[1:]])) for name in names},
        "probe_s": probe_s,
        "amortised_probe_share_R5": probe_s / 5 / seconds["fedavg"],
    }


class ProbingRound:
    """Trains the same round again and again, every vehicle probing in it.

    Directions, which vehicles share, are drawn anew each time, as in rounds that differ.
    """

    def __init__(self, federation: Federation, directions: int, points: int, batch: int) -> None:
        self.federation = federation
        self.probe_s = list[float]()
        """Seconds of the probes of each round."""
        self.method = get(
            "fo-ri-fedavg", probe_every=1, directions=directions, points=points, probe_batch=batch
        )
        begun = probed(federation.start(self.method)[0])
        self.state = federation.advance(self.method, begun)[0]

    def __call__(self) -> None:
        """One such round."""
        drawn_directions.cache_clear()
        record = self.federation.advance(self.method, self.state)[1]
        self.probe_s.append(record.seconds["probe"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/performance_probe.json"))
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    record: dict[str, Any] = {"load_before": before, "probe": bench_probe(repeats=options.repeats)}
    print(f"{record['probe']['times_faster']:.1f} times faster than forward passes", flush=True)
    record["rounds"] = []
    for windows in options.windows:
        record["rounds"].append(bench_components(windows, repeats=options.repeats))
        share = record["rounds"][-1]["amortised_probe_share_R5"]
        print(f"{windows:,} windows: the probe adds {share:.2%} at R = 5", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
