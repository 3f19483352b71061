"""Small fleets made by hand, and the scalar toy of the golden vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedwatt.federation import Federation, Loop, State, Training
from fedwatt.federation.participation import Call
from fedwatt.methods import Method
from fedwatt.methods.rule import Start
from fedwatt.metrics import Stopwatch
from fedwatt.models import Layout, Model
from fedwatt.models.model import Parts, squared
from fedwatt.windows import Client, DataSettings, Fleet


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
        ends = {}
        labels = {}
        begin = 0
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


class BodyAndHead(Model):
    """y = u·v·x with a body u and a head v, from u = 0.5 and v = 1: `Line` of the product."""

    layout = Layout({"body": (1, 1), "head": (1, 1)})
    spectral_matrix = "body"
    head_names = ("head",)

    def initial(self, rng: np.random.Generator) -> Tensor:
        return torch.tensor([0.5, 1.0], dtype=torch.float64)

    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        return windows.flatten(-2) @ parts["body"]

    def head(self, parts: Parts, representation: Tensor) -> Tensor:
        return (representation @ parts["head"]).squeeze(-1)


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
    training = {"learning_rate": 0.25, "schedule": "constant", "steps": 1, "participation": 1.0}
    training |= terms.pop("training", {})
    return Federation(
        Fleet(tuple(clients), DataSettings(window=1), "lines"),
        Line(),
        training=Training(precision="float64", **training),
        device="cpu",
        **terms,
    )


STEPS = (2, 3)
FULL = ((0, 1),) * 3
PARTIAL = ((0,), (1,), (0, 1))


def over(federation: Federation, backend: Any) -> Loop:
    """Return the rounds of a federation with another backend."""
    return Loop(lambda _: backend, federation.terms, federation.model, federation.device)


def toy_states(
    method: Method, schedule: Sequence[Sequence[int]], model: Model | None = None, **given: Any
) -> Iterator[tuple[Federation, State]]:
    """The scalar toy after each round with η = 0.1 and the participants of `schedule`.

    `given` are parts of the state before the first round, in place of the method's own.
    """
    training = Training(learning_rate=0.1, schedule="constant", batch=3, precision="float64")
    toy = Federation(scalar_toy(), model or Line(), training=training, device="cpu")
    state = replace(toy.start(method)[0], **given)
    for called in schedule:
        watch = Stopwatch()
        present = toy.simulated.present(state)
        calls = [Call(0, k, STEPS[k]) for k in called]
        work = replace(toy.simulated.trained(method, state, calls, watch), called=calls)
        state, _ = toy.conclude(method, state, present, work, watch)
        yield toy, state


def toy_rounds(
    method: Method, schedule: Sequence[Sequence[int]], client_state: dict[str, Tensor] | None = None
) -> list[float]:
    """w_1, w_2, w_3 of the scalar toy; `client_state` is both vehicles' state at the start."""
    inputs = {}
    if client_state is not None:
        tables = {n: v.expand(1, 2, *v.shape).clone() for n, v in client_state.items()}
        inputs["client_state"] = tables
    return [state.weights.item() for _, state in toy_states(method, schedule, **inputs)]


def a_start(anchor: Tensor, model: Model, **known: Any) -> Start:
    """A round's start for the vehicles of `anchor` [P, D]; what is not `known` is unremarkable."""

    def no_probe(*what: Any) -> Any:
        raise AssertionError("nobody should probe or train here")

    ones = torch.ones(len(anchor), dtype=torch.float64)
    plain = {
        "round": 0,
        "vehicles": tuple(f"car-{k}" for k in range(len(anchor))),
        "learning_rate": 0.1,
        "anchor": anchor,
        "broadcast": {},
        "steps": torch.ones(len(anchor), dtype=torch.int64),
        "relative_size": ones,
        "speed": ones,
        "model": model,
        "loss": squared,
        "probe_batch": no_probe,
        "fixed_batch": no_probe,
        "probe_directions": no_probe,
        "train": no_probe,
    }
    return Start(**plain | known)


def all_finite(state: State) -> bool:
    """Return whether a state is finite; the mean of two models may not be evaluated."""
    reference = {
        name: local for name, local in state.tensors().items() if name != "mean_validation"
    }
    return all(tensor.isfinite().all() for tensor in reference.values())
