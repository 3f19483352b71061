"""The recipe in pfl-research: federated averaging on its simulated backend, in one process."""

from importlib.metadata import version as installed
from time import perf_counter
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from task import BATCH, PARTICIPANTS, RATE, VEHICLES, WINDOWS, rounds_asked, tell, vehicle
from torch_network import Network, version


class Trained(Network):
    """The network with the loss and metrics that pfl asks for."""

    def loss(self, windows: Any, labels: Any, eval: bool = False) -> torch.Tensor:
        """Mean squared error."""
        self.train(not eval)
        inputs = torch.as_tensor(windows)
        wanted = torch.as_tensor(labels)
        return torch.nn.functional.mse_loss(self(inputs), wanted)

    def metrics(self, windows: Any, labels: Any, eval: bool = True) -> dict[str, Any]:
        """None: nothing is evaluated."""
        return {}


class Timed(TrainingProcessCallback):
    """Notes the seconds of each central iteration."""

    def __init__(self) -> None:
        self.begin = perf_counter()
        self.seconds = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """A round is over."""
        now = perf_counter()
        self.seconds.append(now - self.begin)
        self.begin = now
        return False, Metrics()


data = [vehicle(number) for number in range(VEHICLES)]
rng = np.random.default_rng(0)


def shuffled(number: int) -> Dataset:
    """A vehicle's windows in a fresh order, which pfl takes as they come."""
    windows, labels = data[number]
    order = rng.permutation(WINDOWS)
    return Dataset([torch.from_numpy(windows[order]), torch.from_numpy(labels[order])])


network = Trained()
fleet = FederatedDataset(shuffled, get_user_sampler("random", list(range(VEHICLES))))
model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
timed = Timed()
rounds = rounds_asked() + 1
FederatedAveraging().run(
    NNAlgorithmParams(
        central_num_iterations=rounds,
        evaluation_frequency=rounds + 1,
        train_cohort_size=PARTICIPANTS,
        val_cohort_size=0,
    ),
    SimulatedBackend(training_data=fleet, val_data=None),
    model,
    NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
    NNEvalHyperParams(local_batch_size=BATCH),
    [timed],
)
tell(f"pfl {installed('pfl')}, {version()}", timed.seconds)
