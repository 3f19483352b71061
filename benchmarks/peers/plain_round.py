"""The recipe as a plain loop over vehicles in PyTorch: what everybody writes first."""

from time import perf_counter

import numpy as np
import torch
from task import BATCH, PARTICIPANTS, RATE, VEHICLES, WINDOWS, rounds_asked, tell, vehicle
from torch import nn
from torch_network import Network, version

network = Network()
loss = nn.MSELoss()
data = [tuple(map(torch.from_numpy, vehicle(number))) for number in range(VEHICLES)]
rng = np.random.default_rng(0)
seconds = []
weights = [parameter.detach().clone() for parameter in network.parameters()]
for _ in range(rounds_asked() + 1):
    begin = perf_counter()
    total = [torch.zeros_like(w) for w in weights]
    for number in rng.choice(VEHICLES, PARTICIPANTS, replace=False):
        with torch.no_grad():
            for parameter, w in zip(network.parameters(), weights, strict=True):
                parameter.copy_(w)
        optimiser = torch.optim.SGD(network.parameters(), lr=RATE)
        windows, labels = data[number]
        for index in torch.split(torch.randperm(WINDOWS), BATCH):
            optimiser.zero_grad()
            loss(network(windows[index]), labels[index]).backward()
            optimiser.step()
        with torch.no_grad():
            for mean, parameter in zip(total, network.parameters(), strict=True):
                mean.add_(parameter, alpha=1 / PARTICIPANTS)
    weights = total
    seconds.append(perf_counter() - begin)
tell(version(), seconds)
