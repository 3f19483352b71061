"""A network that somebody else has written, as nodes of an ONNX graph.

torch traces it on an example window and writes what it did. That is done by torch's older exporter:
the newer one needs a further package (onnxscript). `fedwatt.edge.graph` writes the networks of
fedwatt itself, whose files come out smaller and faster.
"""

import io
import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import compose, numpy_helper
from torch import Tensor, nn

from fedwatt.errors import SettingError
from fedwatt.models import Model, ModuleModel

IN, OUT = "windows", "energies"


class _AsModule(nn.Module):
    """A `Model` with its weights as a module."""

    def __init__(self, model: Model, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.model = model
        flat = torch.cat([weights[name].flatten() for name in model.layout.shapes])
        self.weights = nn.Parameter(flat)

    def forward(self, windows: Tensor) -> Tensor:
        """Energies [batch] of windows [batch, window, features]."""
        return self.model.predict(self.weights, windows)


def traced(
    model: Model, weights: Mapping[str, NDArray[Any]], window: int, features: int, opset: int
) -> Any:
    """The ONNX model of a network: float32 [batch, window, features] to energies, one a window."""
    tensors = {name: torch.from_numpy(np.asarray(part)).float() for name, part in weights.items()}
    if isinstance(model, ModuleModel):
        network = deepcopy(model.module).float()
        network.load_state_dict(tensors)
        name = type(network).__name__
    else:
        network, name = _AsModule(model, tensors), type(model).__name__
    file = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is the older exporter
            torch.onnx.export(
                network.eval(),
                # Not one window and not as many as there are seconds: what is traced must not take
                # the size of the batch for anything else.
                (torch.zeros(window + 2, window, features),),
                file,  # type: ignore[arg-type]  # the older exporter takes a file as well
                dynamo=False,
                opset_version=opset,
                input_names=[IN],
                output_names=[OUT],
                dynamic_axes={IN: {0: "batch"}, OUT: {0: "batch"}},
            )
    except Exception as error:  # whatever the code of somebody else, or torch on it, raises
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise SettingError(f"{name} cannot be written as ONNX: {reason}.") from error
    return onnx.load_from_string(file.getvalue())


def prefixed(found: Any, prefix: str) -> tuple[list[Any], dict[str, NDArray[Any]], str, str]:
    """(nodes, constants by name, input, output) of a traced network, names behind `prefix`."""
    graph = compose.add_prefix(found, prefix).graph
    constants = {part.name: numpy_helper.to_array(part) for part in graph.initializer}
    return list(graph.node), constants, graph.input[0].name, graph.output[0].name
