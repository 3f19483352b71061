"""The recipe in FedLab: its serial trainer and synchronous server, with a DataLoader a client."""

from importlib.metadata import version as installed
from time import perf_counter

import torch
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from task import BATCH, PARTICIPANTS, RATE, VEHICLES, rounds_asked, tell, vehicle
from torch.utils.data import DataLoader, TensorDataset
from torch_network import Network, version


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
