"""FedEL once more, one vehicle at a time: windows, exits, times and choices spelled out.

The best set of tensors is found by trying all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np
import torch
from torch import Tensor, nn

from fedwatt.federation import Availability
from fedwatt.federation.participation import device_speed
from fedwatt.models import MLP
from fedwatt.randomness import generator
from fedwatt.windows import Client
from tests.federation.plain_baselines import Plain


class Exits(nn.Module):
    """An MLP that leaves after hidden layer `front` (from 0); the last exit is its output."""

    def __init__(self, model: MLP, dtype: torch.dtype) -> None:
        super().__init__()
        widths = (model.window * model.features, *model.hidden)
        self.layers = nn.ModuleList(nn.Linear(i, o, dtype=dtype) for i, o in pairwise(widths))
        self.heads = nn.ModuleList(nn.Linear(width, 1, dtype=dtype) for width in model.hidden)

    def forward(self, x: Tensor, front: int) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers[: front + 1]:
            x = torch.relu(layer(x))
        return self.heads[front](x).flatten()

    def ordered(self) -> list[tuple[str, nn.Parameter]]:
        """The library's order: layers, output, then the early exits."""
        modules = [("layer", i, layer) for i, layer in enumerate(self.layers)]
        last = len(self.heads) - 1
        modules += [("head", i, self.heads[i]) for i in [last, *range(last)]]
        return [
            (f"{kind} {i} {name}", parameter)
            for kind, i, module in modules
            for name, parameter in (("W", module.weight), ("b", module.bias))
        ]

    def load(self, w: Tensor) -> "Exits":
        with torch.no_grad():
            for _, p in self.ordered():
                piece, w = w[: p.numel()], w[p.numel() :]
                p.copy_(piece.view(p.shape[::-1]).mT if p.dim() == 2 else piece)
        return self

    def flat(self, of: Callable[[nn.Parameter], Tensor | None]) -> Tensor:
        pieces = []
        for _, p in self.ordered():
            value = of(p)
            value = torch.zeros_like(p) if value is None else value
            pieces.append((value.mT if p.dim() == 2 else value).detach().flatten())
        return torch.cat(pieces)


@dataclass
class FedEL(Plain):
    beta: float = 0.6
    availability: Availability = field(default_factory=Availability)
    uniform: bool = False
    budget: float | None = None

    def prepare(self) -> None:
        self.before: Tensor | None = None
        self.window: dict[str, tuple[int, int]] = {}
        self.chosen: dict[str, set[str]] = {}
        self.runtime: dict[str, float] = {}
        self.shapes = {name: p.shape for name, p in Exits(self.model, self.dtype).ordered()}
        self.last = len(self.model.hidden) - 1

    def initial(self) -> Tensor:
        rng = generator(self.seed, "initial model")
        pieces = [self.model.initial(rng)]
        for width in self.model.hidden[:-1]:
            bound = 1 / np.sqrt(width)
            pieces.append(torch.from_numpy(rng.uniform(-bound, bound, (width, 1)).ravel()))
            pieces.append(torch.from_numpy(rng.uniform(-bound, bound, 1)))
        return torch.cat(pieces).to(self.dtype)

    def gradient_at(self, w: Tensor, x: Tensor, y: Tensor, front: int) -> Tensor:
        net = Exits(self.model, w.dtype).load(w)
        ((net(x, front) - y) ** 2).mean().backward()
        return net.flat(lambda p: p.grad)

    def by_tensor(self, values: Tensor) -> dict[str, Tensor]:
        sizes = [shape.numel() for shape in self.shapes.values()]
        return dict(zip(self.shapes, torch.split(values, sizes), strict=True))

    def layers(self, first: int, front: int) -> list[str]:
        """Tensors of the layers first..front, from input to output."""
        return [f"layer {i} {name}" for i in range(first, front + 1) for name in "Wb"]

    # Times are those of a computer of speed 1, in operations a window.

    def forward(self, name: str) -> int:
        return 2 * self.shapes[name].numel() if name.endswith("W") else 0

    def own_gradient(self, name: str) -> int:
        return (2 if name.endswith("W") else 1) * self.shapes[name].numel()

    def passing_on(self, name: str) -> int:
        return self.forward(name)

    def time(self, front: int, chosen: set[str]) -> int:
        """Of a step that trains `chosen` and the exit after `front`."""
        path = self.layers(0, front)
        exits = [f"head {front} W", f"head {front} b"]
        total = sum(self.forward(name) for name in path + exits)
        total += sum(self.own_gradient(name) for name in [*chosen, *exits])
        if chosen:
            shallowest = min(path.index(name) for name in chosen)
            total += sum(self.passing_on(name) for name in (path + exits)[shallowest + 1 :])
        return total

    def local(self, client: Client) -> Tensor:
        speed = device_speed(self.seed, client.name, self.availability)
        complete = self.time(self.last, set(self.layers(0, self.last)))
        budget = complete / max(self.availability.speeds)
        if self.budget is not None:
            budget = complete * self.budget
        first, front = self.slide(client.name, speed, budget)
        importance = self.importance(client, first, front)
        sets = [set(s) for r in range(len(importance) + 1) for s in combinations(importance, r)]
        fitting = [s for s in sets if self.time(front, s) / speed <= budget] or [set()]
        best = max(fitting, key=lambda s: (sum(importance[n] for n in sorted(s)), len(s)))
        self.window[client.name] = (first, front)
        self.runtime[client.name] = self.time(front, best) / speed / budget
        self.chosen[client.name] = best | {f"head {front} W", f"head {front} b"}
        w = self.w.clone()
        for x, y in self.batches(client):
            pieces = self.by_tensor(self.gradient_at(w, x, y, front))
            for name, piece in pieces.items():
                if name not in self.chosen[client.name]:
                    piece.zero_()
            w = w - self.learning_rate * torch.cat(list(pieces.values()))
        return w

    def slide(self, name: str, speed: float, budget: float) -> tuple[int, int]:
        if name not in self.window or self.window[name][1] == self.last:
            first = 0
            begin = 0
        else:
            first, front = self.window[name]
            while first < front and not self.chosen[name] & set(self.layers(first, first)):
                first += 1
            begin = front + 1
        front = begin
        passed = 0.0
        while True:
            last_layers = self.layers(front, front)
            passed += sum(self.own_gradient(n) + self.passing_on(n) for n in last_layers) / speed
            if passed >= budget or front == self.last:
                return first, front
            front += 1

    def importance(self, client: Client, first: int, front: int) -> dict[str, float]:
        candidates = self.layers(first, front)
        x, y = self.probe(client, 128, torch.float64, "importance batch")
        here = self.w.double()
        g = self.gradient_at(here, x, y, front)
        after = self.gradient_at(here - self.learning_rate * g, x, y, front)
        gain = self.by_tensor(-after * (-self.learning_rate * g))
        local = {n: max(float(gain[n].sum()), 0) for n in candidates}
        values = {n: local[n] / max(local.values()) for n in candidates}
        if self.before is not None:
            change = self.by_tensor((self.w.double() - self.before.double()) ** 2)
            reference = {n: float(change[n].sum()) for n in candidates}
            if max(reference.values()) > 0:
                for n in candidates:
                    share = reference[n] / max(reference.values())
                    values[n] = self.beta * values[n] + (1 - self.beta) * share
        return values

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        after = self.by_tensor(self.w.double().clone())
        for name in self.shapes:
            who = [
                (1 if self.uniform else self.windows(client), self.by_tensor(w_k.double())[name])
                for client, w_k in zip(clients, trained, strict=True)
                if name in self.chosen[client.name]
            ]
            if who:
                after[name] = sum(n * w_k for n, w_k in who) / sum(n for n, _ in who)
        self.before = self.w
        return torch.cat([after[name] for name in self.shapes])
