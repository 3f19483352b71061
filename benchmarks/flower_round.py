"""The recipe's rounds in Flower's Ray simulation, with the plain PyTorch client.

    python -m benchmarks.flower_round ROUNDS

prints the seconds of each round but the first, which starts the workers. Every worker keeps the
fleet's data in memory, so that only models travel, and one core per client is asked for.
"""

import json
import sys
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np
import torch

from benchmarks.networks import network
from benchmarks.recipe import FEATURES, WINDOW, Loop, Recipe
from fedwatt.errors import RunError
from fedwatt.models import MLP


@cache
def loop() -> Loop:
    """The data and the network of this worker."""
    torch.set_num_threads(1)
    recipe = Recipe()
    return Loop(recipe.fleet(), recipe, network(MLP(WINDOW, FEATURES)), "cpu")


def client_app() -> Any:
    """A client that trains one epoch from the weights that it is sent."""
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import Context

    class Vehicle(NumPyClient):
        def __init__(self, number: int) -> None:
            self.number = number

        def fit(self, parameters: list[Any], config: dict[str, Any]) -> Any:
            weights = [torch.from_numpy(np.array(p)) for p in parameters]
            trained = loop().round(weights, [self.number])
            return [w.numpy() for w in trained], loop().recipe.windows, {}

    def build(context: Context) -> Any:
        return Vehicle(int(context.node_config["partition-id"])).to_client()

    return ClientApp(client_fn=build)


def server_app(rounds: int, seconds: list[float]) -> Any:
    """FedAvg that notes when each round begins and ends."""
    from flwr.common import Context, ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg

    recipe = Recipe()

    class Timed(FedAvg):
        def configure_fit(self, *args: Any, **options: Any) -> Any:
            self.begin = perf_counter()
            return super().configure_fit(*args, **options)

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            if len(results) != recipe.participants:
                raise RunError(f"Flower trained {len(results)} of {recipe.participants} clients.")
            result = super().aggregate_fit(server_round, results, failures)
            seconds.append(perf_counter() - self.begin)
            return result

    def build(context: Context) -> Any:
        start = [p.detach().numpy() for p in network(MLP(WINDOW, FEATURES)).parameters()]
        strategy = Timed(
            fraction_fit=recipe.participants / recipe.vehicles,
            fraction_evaluate=0.0,
            min_available_clients=recipe.vehicles,
            initial_parameters=ndarrays_to_parameters(start),
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

    return ServerApp(server_fn=build)


def main() -> None:
    """Run and print JSON on the last line."""
    from flwr.simulation import run_simulation

    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    seconds: list[float] = []
    run_simulation(
        server_app=server_app(rounds, seconds),
        client_app=client_app(),
        num_supernodes=Recipe().vehicles,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    print(json.dumps(seconds[1:]), flush=True)


if __name__ == "__main__":
    # Under its own name the workers can import it, too.
    from benchmarks import flower_round

    flower_round.main()
