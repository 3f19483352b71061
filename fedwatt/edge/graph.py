"""A model as an ONNX graph, written node by node: windows in, energies out, any batch.

For fedwatt's own networks this is the one place outside `fedwatt.models` that knows how its
backbones compute, and tests/edge/test_graph.py holds it against `Model.predict` to 1e-6. Tracing
`predict` instead was tried with torch 2.13: the exporter that needs no further package is
deprecated and unrolls a GRU over its window into 2,800 nodes (264 kB, 0.8 ms a window), where
ONNX's own GRU node takes 7 nodes (17 kB, 0.05 ms); the new exporter needs onnxscript. Neither
writes scaling, float16 or int8. A network that somebody else has written is traced all the same, by
the older exporter.

With a vehicle, its feature scaling and the inverse label scaling are nodes of the graph: physical
features in float64 go in, Wh come out, and the network between them sees the very float32 numbers
that it was trained on.

ONNX orders gates differently: GRU update, reset, new (torch: reset, update, new) and LSTM input,
output, forget, cell (torch: input, forget, cell, output).
"""

import io
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedwatt.edge.card import KEY, ModelCard
from fedwatt.errors import RunError, SettingError, unknown
from fedwatt.journeys.mixture import Mixture
from fedwatt.models import Model, ModuleModel
from fedwatt.windows.scaling import Scaler

try:
    import onnx
    from onnx import TensorProto, compose, helper, numpy_helper
except ImportError as problem:  # pragma: no cover
    raise RunError("Export needs onnx: pip install 'fedwatt[train]'.") from problem

Array = NDArray[Any]
OPSET = 17
# onnxruntime 1.20 and later read it.
IR_VERSION = 8
GATES = {"gru": (1, 0, 2), "lstm": (0, 3, 1, 2)}


@dataclass(frozen=True, eq=False)
class Network:
    """The tensors of a trained model's layout by their names, and how its vehicle scales.

    Without a `scaler` the network takes scaled features and gives scaled energy. `own` is the
    network itself where it is none of fedwatt's.
    """

    weights: Mapping[str, Array]
    scaler: Scaler | None = None
    label_center_wh: float = 0.0
    label_scale_wh: float = 1.0
    mixture: Mixture | None = None
    own: Model | None = None


@dataclass(frozen=True)
class _Graph:
    """Nodes and constants of a graph that is being built."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, name: str, values: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def weight(self, name: str, values: Array) -> str:
        return self.constant(name, np.asarray(values, np.float32))

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output


def build(
    card: ModelCard,
    network: Network,
    *,
    notes: Mapping[str, str] | None = None,
) -> Any:
    """Return the ONNX model of a network.

    With a scaler the graph maps physical features [batch, window, features] (float64) to Wh [batch]
    (float64), otherwise scaled features to scaled energy, both float32. `notes` go into the file's
    metadata beside the card.
    """
    graph = _Graph()
    kind = TensorProto.FLOAT if network.scaler is None else TensorProto.DOUBLE
    shape: list[str | int | None] = ["batch", card.window, len(card.features)]
    inputs = [helper.make_tensor_value_info("windows", kind, shape)]
    _energy(graph, card, network)
    outputs = [helper.make_tensor_value_info("energy", kind, ["batch"])]
    made = helper.make_graph(graph.nodes, "fedwatt", inputs, outputs, graph.constants)
    model = helper.make_model(
        made,
        producer_name="fedwatt",
        producer_version=card.library,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model, {KEY: card.to_json(), **(notes or {})})
    onnx.checker.check_model(model, full_check=True)
    return model


def _energy(graph: _Graph, card: ModelCard, network: Network) -> None:
    """Add the energies [batch] of the graph's windows."""
    backbone = card.backbone
    weights = network.weights
    scaler = network.scaler
    inside = "windows" if scaler is None else _scaled(graph, scaler, "windows")
    columns = len(card.features)
    if network.own is not None:
        traced = _traced(network.own, weights, card.window, columns)
        out = _included(graph, traced, inside)
    elif backbone == "mlp":
        out = _affine(
            graph, weights, "output", _perceptron(graph, weights, inside, card.window * columns)
        )
    elif backbone in GATES:
        out = _affine(graph, weights, "output", _recurrent(graph, backbone, weights, inside))
    else:
        raise SettingError(unknown("backbone", backbone, ("mlp", *GATES)))
    flat = graph.constant("flat", np.array([-1], np.int64))
    if scaler is None:
        graph.node("Reshape", [out, flat], "energy")
        return
    label = graph.node("Reshape", [out, flat], "label")
    wide = graph.node("Cast", [label], "label.float64", to=TensorProto.DOUBLE)
    if network.mixture is not None:
        wide = _mixed(graph, network.mixture, inside, wide)
    scale = graph.constant("label_scale_wh", np.array(network.label_scale_wh))
    center = graph.constant("label_center_wh", np.array(network.label_center_wh))
    graph.node("Add", [graph.node("Mul", [wide, scale], "above_center"), center], "energy")


class _AsModule(nn.Module):
    """A `Model` with its weights as a module."""

    def __init__(self, model: Model, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.model = model
        flat = torch.cat([weights[name].flatten() for name in model.layout.shapes])
        self.weights = nn.Parameter(flat)

    def forward(self, windows: Tensor) -> Tensor:
        """Return the energies [batch] of windows [batch, window, features]."""
        return self.model.predict(self.weights, windows)


def _traced(model: Model, weights: Mapping[str, Array], window: int, features: int) -> Any:
    """Return the ONNX model of a network: float32 [batch, window, features] to energies, one a
    window.
    """
    tensors = {name: torch.from_numpy(np.asarray(part)).float() for name, part in weights.items()}
    if isinstance(model, ModuleModel):
        network = deepcopy(model.module).float()
        network.load_state_dict(tensors)
        name = type(network).__name__
    else:
        network = _AsModule(model, tensors)
        name = type(model).__name__
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
                opset_version=OPSET,
                input_names=["windows"],
                output_names=["energies"],
                dynamic_axes={"windows": {0: "batch"}, "energies": {0: "batch"}},
            )
    except Exception as error:  # whatever the code of somebody else, or torch on it, raises
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise SettingError(f"{name} cannot be written as ONNX: {reason}.") from error
    return onnx.load_from_string(file.getvalue())


def _included(graph: _Graph, traced: Any, x: str) -> str:
    """Return the energies of a traced network, whose nodes become part of the graph."""
    subgraph = compose.add_prefix(traced, "own.").graph
    for part in subgraph.initializer:
        graph.constant(part.name, numpy_helper.to_array(part))
    graph.node("Identity", [x], subgraph.input[0].name)
    graph.nodes.extend(subgraph.node)
    return str(subgraph.output[0].name)


def _scaled(graph: _Graph, scaler: Scaler, windows: str) -> str:
    """Add `Scaler.forward` in float64 and the cast to float32, as for a client's series."""
    center = graph.constant("feature_center", scaler.center)
    # A product is several times faster than a division and as good in float64.
    inverse = graph.constant("feature_inverse_scale", 1 / scaler.scale)
    x = graph.node("Sub", [windows, center], "centred")
    x = graph.node("Mul", [x, inverse], "scaled")
    return graph.node("Cast", [x], "series", to=TensorProto.FLOAT)


def _mixed(graph: _Graph, mixture: Mixture, inside: str, label: str) -> str:
    """Add `Mixture.predict` in float64, of scaled windows and the network's scaled energies."""
    means = graph.node("ReduceMean", [inside], "means", axes=[1], keepdims=0)
    wide = graph.node("Cast", [means], "means.float64", to=TensorProto.DOUBLE)
    beta = graph.constant("ridge", mixture.linear[:-1, None])
    shift = graph.constant("ridge_intercept", np.array(mixture.linear[-1]))
    flat = graph.constant("ridge_flat", np.array([-1], np.int64))
    linear = graph.node("MatMul", [wide, beta], "ridge_column")
    linear = graph.node("Add", [graph.node("Reshape", [linear, flat], "ridge_sum"), shift], "line")
    weight = graph.constant("network_weight", np.array(mixture.network))
    return graph.node("Add", [graph.node("Mul", [label, weight], "share"), linear], "mixture")


def _affine(graph: _Graph, weights: Mapping[str, Array], layer: str, x: str) -> str:
    weight = graph.weight(f"{layer}.weight", weights[f"{layer}.weight"])
    bias = graph.weight(f"{layer}.bias", weights[f"{layer}.bias"])
    return graph.node("Gemm", [x, weight, bias], f"{layer}.sum")


def _perceptron(graph: _Graph, weights: Mapping[str, Array], x: str, width: int) -> str:
    x = graph.node("Reshape", [x, graph.constant("row", np.array([-1, width]))], "flattened")
    layers = sum(name.startswith("hidden") and name.endswith("weight") for name in weights)
    for layer in (f"hidden{number + 1}" for number in range(layers)):
        x = graph.node("Relu", [_affine(graph, weights, layer, x)], layer)
    return x


def _recurrent(graph: _Graph, backbone: str, weights: Mapping[str, Array], x: str) -> str:
    """Return the hidden state after the last second, [batch, hidden]."""
    order = GATES[backbone]
    hidden = weights["recurrent.weight"].shape[0]

    def gates(values: Array) -> Array:
        """Return [..., gates·hidden] in ONNX's order of gates."""
        return np.concatenate([np.split(values, len(order), axis=-1)[gate] for gate in order], -1)

    def matrix(name: str) -> str:
        return graph.weight(name, gates(weights[name]).T[None])

    biases = np.concatenate([gates(weights[f"{part}.bias"]) for part in ("input", "recurrent")])
    inputs = [
        graph.node("Transpose", [x], "by_second", perm=[1, 0, 2]),
        matrix("input.weight"),
        matrix("recurrent.weight"),
        graph.weight("biases", biases[None]),
    ]
    settings: dict[str, Any] = {"hidden_size": hidden}
    if backbone == "gru":
        settings["linear_before_reset"] = 1  # torch resets after the recurrent product
    last = "last_state"
    graph.nodes.append(helper.make_node(backbone.upper(), inputs, ["", last], **settings))
    axes = graph.constant("directions", np.array([0], np.int64))
    return graph.node("Squeeze", [last, axes], "hidden")
