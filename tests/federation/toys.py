"""Small fleets made by hand, and the scalar toy of the golden vectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedwatt.data import Client, DataSettings, Fleet
from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.job import Job
from fedwatt.engine.pool import pool_fleet
from fedwatt.engine.together import train
from fedwatt.federation import Federation, Training
from fedwatt.federation.local_round import accumulation, begin_rules, finish_rules, shifted
from fedwatt.methods import Method
from fedwatt.methods.rule import Batch, Start
from fedwatt.methods.server import Replies
from fedwatt.metrics import Stopwatch
from fedwatt.models import Layout, Model
from fedwatt.models.loss import squared
from fedwatt.models.model import Parts


def random_fleet(
    sizes: Sequence[int] = (70, 33, 128, 5), *, window: int = 4, held_out: Sequence[int] = ()
) -> Fleet:
    """Vehicles with `sizes` training windows of eight random features and a learnable label."""
    clients = []
    for k, size in enumerate(sizes):
        rng = np.random.default_rng(k)
        seconds = size + 40 + 3 * (window - 1)
        series = rng.standard_normal((seconds, 8)).astype(np.float32)
        energy = series[:, 0] * (1 + 0.3 * k) + 0.5 * series[:, 1] ** 2
        # Three trips, one after the other: windows never cross their borders.
        ends, labels, begin = {}, {}, 0
        for split, count in (("train", size), ("validation", 16), ("test", 24)):
            ends[split] = np.arange(count) + begin + window - 1
            sums = np.array([energy[end - window + 1 : end + 1].sum() for end in ends[split]])
            labels[split] = (sums / 3).astype(np.float32)
            begin += count + window - 1
        strata = {"speed": (("slow", "fast"), (np.arange(24) % 2).astype(np.int8))}
        clients.append(
            Client(
                name=f"car-{k:03d}",
                features=("speed",) * 8,
                window=window,
                series=series,
                ends=ends,
                labels=labels,
                label_center_wh=40.0,
                label_scale_wh=10.0 * (k + 1),
                strata=strata,
                trips={split: (split,) for split in ends},
                held_out=k in held_out,
            )
        )
    return Fleet(tuple(clients), DataSettings(window=window), "toy")


class Line(Model):
    """y = w·x with one weight: with x = a and y = a·b the loss is a²(w - b)²."""

    layout = Layout({"weight": (1, 1)})
    spectral_matrix = "weight"

    def initial(self, rng: np.random.Generator) -> Tensor:
        return torch.tensor([0.5], dtype=torch.float64)

    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        return windows.flatten(-2)

    def head(self, parts: Parts, representation: Tensor) -> Tensor:
        return (representation @ parts["weight"]).squeeze(-1)


def scalar_toy() -> Fleet:
    """∇F_1 = w - 1 with one window, ∇F_2 = 2(w + 2) with three."""
    clients = []
    for k, (a, b, n) in enumerate([(np.sqrt(0.5), 1.0, 1), (1.0, -2.0, 3)]):
        ends = np.arange(n)
        clients.append(
            Client(
                name=f"car-{k}",
                features=("speed",),
                window=1,
                series=np.full((n, 1), a),
                ends={split: ends for split in ("train", "validation", "test")},
                labels={split: np.full(n, a * b) for split in ("train", "validation", "test")},
                label_center_wh=0.0,
                label_scale_wh=1.0,
                strata={},
                trips={},
            )
        )
    return Fleet(tuple(clients), DataSettings(window=1), "scalar toy")


def line_client(
    name: str, *, held_out: bool = False, **points: list[tuple[float, float]]
) -> Client:
    """A vehicle of windows of one sample x with energy y, in Wh: split -> (x, y) pairs."""
    splits = ("train", "validation", "test")
    bounds = np.cumsum([0, *(len(points[split]) for split in splits)])
    return Client(
        name=name,
        features=("speed",),
        window=1,
        series=np.array([[x] for split in splits for x, _ in points[split]]),
        ends={s: np.arange(bounds[k], bounds[k + 1]) for k, s in enumerate(splits)},
        labels={split: np.array([y for _, y in points[split]]) for split in splits},
        label_center_wh=0.0,
        label_scale_wh=1.0,
        strata={},
        trips={},
        held_out=held_out,
    )


def line_federation(clients: Sequence[Client], **terms: Any) -> Federation:
    """Vehicles that fit y = w·x from w = 0.5 in float64, one full step of 0.25 a round."""
    training = {"rate": 0.25, "schedule": "constant", "steps": 1, "participation": 1.0}
    training |= terms.pop("training", {})
    return Federation(
        Fleet(tuple(clients), DataSettings(window=1), "lines"),
        Line(),
        training=Training(precision="float64", **training),
        device="cpu",
        **terms,
    )


STEPS = (2, 3)
FULL, PARTIAL = ((0, 1),) * 3, ((0,), (1,), (0, 1))


def toy_rounds(
    method: Method, schedule: Sequence[Sequence[int]], memory: dict[str, Tensor] | None = None
) -> list[float]:
    """w_1, w_2, w_3 of the scalar toy with η = 0.1 and the participants of `schedule`.

    `memory` is what both vehicles remember at the start, in place of each rule's own.
    """
    pool = pool_fleet(scalar_toy(), device=torch.device("cpu"), dtype=torch.float64)
    own = {
        name: value.double() if value.dim() else value
        for rule in method.local
        for name, value in rule.memory(Line()).items()
    }
    table = {name: value.expand(2, *value.shape).clone() for name, value in (memory or own).items()}
    weights, server = Line().initial(np.random.default_rng(0)), method.server.state(Line())
    path = []
    for t, called in enumerate(schedule):
        rows = sorted(called, key=lambda k: -STEPS[k])
        sent = {
            name: v.expand(len(rows), -1) for name, v in method.server.broadcast(server).items()
        }
        windows = torch.tensor([2.0 * k + 1 for k in rows], dtype=torch.float64)
        start = a_start(
            weights.expand(len(rows), 1),
            Line(),
            round=t,
            rate=0.1,
            broadcast=sent,
            steps=torch.tensor([STEPS[k] for k in rows]),
            relative_size=2 * windows / 4,
            probe_batch=lambda row, size, purpose, rows=tuple(rows): _all_windows(rows[row]),
        )
        own, plans = begin_rules(
            method.local, {n: v[rows] for n, v in table.items()}, start, Stopwatch()
        )
        draws = [Draw(0, t, f"car-{k}", windows=2 * k + 1, end=STEPS[k], batch=3) for k in rows]
        job = Job(
            method.local,
            tuple(plans),
            start.model,
            start.loss,
            shifted(method.local, plans, start.anchor),
            start.rate,
            Batches(pool, rows, draws),
        )
        deltas = train(job)
        own, uploads = finish_rules(method.local, own, plans, start, deltas)
        if method.server.normalises:
            uploads["accumulation"] = accumulation(method.local, plans, start)
        rng = np.random.default_rng(t)
        replies = Replies(deltas, windows, 2, 4.0, rng, uploads)
        server, weights = method.server.update(server, weights, replies)
        for name, values in own.items():
            table[name][rows] = values
        path.append(weights.item())
    return path


def _all_windows(vehicle: int) -> Batch:
    """Every training window of a vehicle of the scalar toy."""
    client = scalar_toy().clients[vehicle]
    windows = torch.from_numpy(client.series)[:, None, :]
    return Batch(windows, torch.from_numpy(client.labels["train"]))


def a_start(anchor: Tensor, model: Model, **known: Any) -> Start:
    """A round's start for the vehicles of `anchor` [P, D]; what is not `known` is unremarkable."""

    def no_probe(row: int, size: int, purpose: str = "") -> Any:
        raise AssertionError("nobody should probe here")

    ones = torch.ones(len(anchor), dtype=torch.float64)
    plain = {
        "round": 0,
        "vehicles": tuple(f"car-{k}" for k in range(len(anchor))),
        "rate": 0.1,
        "anchor": anchor,
        "broadcast": {},
        "steps": torch.ones(len(anchor), dtype=torch.int64),
        "relative_size": ones,
        "speed": ones,
        "model": model,
        "loss": squared,
        "probe_batch": no_probe,
        "probe_directions": no_probe,
    }
    return Start(**plain | known)
