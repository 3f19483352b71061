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
from fedwatt.models import MLP, Model, get_model
from fedwatt.models.loss import squared
from fedwatt.threads import threads

PAPER_PROBES = (
    (5, 50, 64, 10),
    (5, 100, 128, 10),
    (10, 100, 128, 10),
    (10, 100, 128, 5),
    (10, 200, 128, 5),
    (10, 100, 256, 5),
    (20, 100, 128, 5),
    (10, 100, 128, 1),
)
"""(M, m, B_probe, R) of the paper's table of sensitivity."""
DEFAULT_PROBE = (10, 100, 128)
WINDOWS = (1_920, 20_000, 200_000)
"""Windows a vehicle has."""


def drawn(model: Model, *, directions: int, batch: int) -> tuple[Tensor, Tensor, Batch]:
    """(weights, directions, windows) of one vehicle at the start of a training."""
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
    """One MLP vehicle's probe at the paper's defaults, in float64 on one core, both ways."""
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


def bench_backbones(*, repeats: int = 3) -> dict[str, float]:
    """Seconds of one vehicle's probe on one core for each backbone."""
    rule = RoughnessProximal()
    s = torch.linspace(-rule.radius, rule.radius, rule.points + 1, dtype=torch.float64)
    ways: dict[str, Callable[[], None]] = {}
    for name in ("mlp", "gru", "lstm"):
        model = get_model(name, window=WINDOW, features=FEATURES)
        weights, lines, batch = drawn(model, directions=rule.directions, batch=rule.probe_batch)

        def once(
            model: Model = model, w: Tensor = weights, d: Tensor = lines, batch: Batch = batch
        ) -> None:
            with torch.no_grad():
                loss_slices(model, squared, w, unit(d), s, batch)

        ways[name] = once
    with threads(1):
        return interleaved(ways, repeats=repeats, warm_up=0)


def bench_components(windows: int, *, repeats: int = 3) -> dict[str, Any]:
    """A round of three vehicles with `windows` each: its parts, and the probe's amortised share."""
    recipe = Recipe(vehicles=3, participants=3, windows=windows)
    federation = Federation(recipe.fleet(), training=recipe.training, device="cpu")
    method = get("fo-ri-fedavg", beta_kappa=0.1, probe_every=1)
    state = federation.start(method)[0]
    parts: list[dict[str, float]] = []

    def probing() -> None:
        drawn_directions.cache_clear()
        parts.append(dict(federation.advance(method, state)[1].seconds))

    ways = {
        name: rounds_of(federation, get(name, **({"probe_every": 10**6} if "ri-" in name else {})))
        for name in ("fedavg", "ri-fedavg", "fo-fedavg", "fo-ri-fedavg")
    }
    settings = sorted({setting[:3] for setting in PAPER_PROBES}, key=DEFAULT_PROBE.__ne__)
    rounds = {setting: ProbingRound(federation, *setting) for setting in settings}
    default, *variants = settings
    ways |= {"all parts": probing, "probe": rounds[default]}
    seconds = interleaved(ways, repeats=repeats)
    # Apart: the larger ones take memory that the others would have to fetch anew.
    interleaved({str(setting): rounds[setting] for setting in variants}, repeats=repeats)
    probe = {
        setting: float(np.median(probing_round.probe_s[1:]))
        for setting, probing_round in rounds.items()
    }
    names = [name for name in parts[0] if name not in ("evaluation", "total")]
    return {
        "windows": windows,
        "seconds_a_round": {name: seconds[name] for name in list(ways)[:4]},
        "parts_s": {
            name: float(np.median([probing_round[name] for probing_round in parts[1:]]))
            for name in names
        },
        "probe_s": probe[default],
        "amortised_probe_share_R5": probe[default] / 5 / seconds["fedavg"],
        "sensitivity": [
            {
                "M": m,
                "m": points,
                "B": batch,
                "R": every,
                "probe_share": probe[m, points, batch] / every / seconds["fedavg"],
                "overhead": (seconds["fo-ri-fedavg"] + probe[m, points, batch] / every)
                / seconds["fedavg"]
                - 1,
            }
            for m, points, batch, every in PAPER_PROBES
        ],
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
    record["backbones_s"] = bench_backbones(repeats=1)
    record["rounds"] = []
    for windows in options.windows:
        record["rounds"].append(bench_components(windows, repeats=options.repeats))
        share = record["rounds"][-1]["amortised_probe_share_R5"]
        print(f"{windows:,} windows: the probe adds {share:.2%} at R = 5", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
