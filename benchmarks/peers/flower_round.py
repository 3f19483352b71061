"""The recipe in Flower's Ray simulation; every worker keeps the data, so only models travel."""

import os
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from task import BATCH, PARTICIPANTS, RATE, VEHICLES, WINDOWS, torch_layers, vehicle
from torch import nn


@cache
def data(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a vehicle's windows and labels, made once in every worker."""
    windows, labels = vehicle(number)
    return torch.from_numpy(windows), torch.from_numpy(labels)


@cache
def network() -> nn.Module:
    """Return the network of this worker."""
    torch.set_num_threads(1)
    return nn.Sequential(*torch_layers())


class Vehicle(NumPyClient):
    """A client that trains one epoch from the weights it receives."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> Any:
        """Train one epoch by plain SGD."""
        model = network()
        windows, labels = data(self.number)
        loss = nn.MSELoss()
        with torch.no_grad():
            for parameter, values in zip(model.parameters(), parameters, strict=True):
                parameter.copy_(torch.from_numpy(np.array(values)))
        optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
        for index in torch.split(torch.randperm(WINDOWS), BATCH):
            optimiser.zero_grad()
            loss(model(windows[index]), labels[index]).backward()
            optimiser.step()
        return [p.detach().numpy().copy() for p in model.parameters()], WINDOWS, {}


class Timed(FedAvg):
    """FedAvg with a clock."""

    seconds: list[float] = []  # noqa: RUF012

    def configure_fit(self, *args: Any, **options: Any) -> Any:
        """Start the clock of a round."""
        self.begin = perf_counter()
        return super().configure_fit(*args, **options)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Note the end of a round."""
        assert len(results) == PARTICIPANTS, f"{len(results)} replies, failures: {failures}"
        made = super().aggregate_fit(server_round, results, failures)
        self.seconds.append(perf_counter() - self.begin)
        return made


def client(context: Context) -> Any:
    """Return the client of a vehicle."""
    return Vehicle(int(context.node_config["partition-id"])).to_client()


def server(rounds: int, context: Context) -> ServerAppComponents:
    """Return FedAvg over 30 of 100 clients."""
    strategy = Timed(
        fraction_fit=PARTICIPANTS / VEHICLES,
        fraction_evaluate=0.0,
        min_available_clients=VEHICLES,
        initial_parameters=ndarrays_to_parameters(
            [p.detach().numpy() for p in network().parameters()]
        ),
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))


def simulate(rounds: int) -> list[float]:
    """Return the seconds of each round."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    run_simulation(
        server_app=ServerApp(server_fn=partial(server, rounds)),
        client_app=ClientApp(client_fn=client),
        num_supernodes=VEHICLES,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return Timed.seconds
