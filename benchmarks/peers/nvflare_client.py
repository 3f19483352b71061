"""A client of NVFlare's simulator: trains one epoch from every model that it receives."""

import nvflare.client as flare
import torch
from nvflare.apis.dxo import MetaKey
from task import BATCH, RATE, WINDOWS, vehicle
from torch import nn
from torch_network import Network

if __name__ == "__main__":
    torch.set_num_threads(1)
    flare.init()
    number = int(flare.get_site_name().removeprefix("site-")) - 1
    windows, labels = (torch.from_numpy(array) for array in vehicle(number))
    network = Network()
    loss = nn.MSELoss()
    while flare.is_running():
        received = flare.receive()
        network.load_state_dict({key: torch.as_tensor(v) for key, v in received.params.items()})
        optimiser = torch.optim.SGD(network.parameters(), lr=RATE)
        for index in torch.split(torch.randperm(WINDOWS), BATCH):
            optimiser.zero_grad()
            loss(network(windows[index]), labels[index]).backward()
            optimiser.step()
        steps = {MetaKey.NUM_STEPS_CURRENT_ROUND: -(-WINDOWS // BATCH)}
        flare.send(flare.FLModel(params=network.state_dict(), meta=steps))
