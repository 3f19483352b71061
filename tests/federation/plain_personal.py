"""The personal methods once more, one vehicle at a time, as in `plain_baselines`.

`own(client)` is the model that a vehicle would drive with after the last round, a flat vector [D].
"""

from dataclasses import dataclass

from torch import Tensor

from fedwatt.data import Client
from tests.federation.plain_baselines import Plain, Table


@dataclass
class Ditto(Plain):
    lam: float = 0.1
    rate_own: float = 1.0

    def prepare(self) -> None:
        self.v: Table = {}

    def local(self, client: Client) -> Tensor:
        v = self.v.get(client.name, self.w).clone()
        for x, y in self.batches(client):
            pull = self.lam * (v - self.w)
            v = v - self.rate_own * self.rate * (self.gradient(v, x, y) + pull)
        self.v[client.name] = v
        return super().local(client)

    def own(self, client: Client) -> Tensor:
        return self.v.get(client.name, self.w)
