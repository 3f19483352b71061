"""The recipe in FedLab: its serial trainer and synchronous server, with a DataLoader a client."""

import sys
from importlib.metadata import version as installed
from time import perf_counter
from unittest.mock import MagicMock

import torch

# FedLab's image datasets, which the recipe has no use for, want a torchvision that must fit torch.
for name in ("torchvision", "torchvision.transforms"):
    sys.modules[name] = MagicMock()

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: E402
from task import BATCH, PARTICIPANTS, RATE, VEHICLES, rounds_asked, tell, vehicle  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from torch_network import Network, version  # noqa: E402


class Fleet:
    """What FedLab asks of a dataset."""

    def __init__(self) -> None:
        pairs = (map(torch.from_numpy, vehicle(number)) for number in range(VEHICLES))
        self.sets = [TensorDataset(*pair) for pair in pairs]

    def get_dataloader(self, number: int, batch_size: int) -> DataLoader:
        """A vehicle's batches in a fresh order."""
        return DataLoader(self.sets[number], batch_size=batch_size, shuffle=True)


rounds = rounds_asked() + 1
network = Network()
server = SyncServerHandler(network, rounds, PARTICIPANTS / VEHICLES, cuda=False)
server.num_clients = VEHICLES
trainer = SGDSerialClientTrainer(network, VEHICLES, cuda=False)
trainer.setup_dataset(Fleet())
trainer.setup_optim(1, BATCH, RATE)
trainer.criterion = torch.nn.MSELoss()
seconds = []
for _ in range(rounds):
    begin = perf_counter()
    asked = server.sample_clients()
    trainer.local_process(server.downlink_package, asked)
    for package in trainer.uplink_package:
        server.load(package)
    seconds.append(perf_counter() - begin)
tell(f"FedLab {installed('fedlab')}, {version()}", seconds)
