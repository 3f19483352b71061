"""Which methods need sums only, what their vehicles add up, and the replies that sums stand for.

With w_k = n_k (or 1, where a rule counts vehicles alike), the vector of vehicle k is

    every method   w_k Δ_k [D], w_k
    SCAFFOLD       and w_k (c_k⁺ - c_k) [D]
    FedNova        w_k Δ_k / a_k [D], w_k, and w_k a_k
    FedEL          w_k A_k Δ_k [D], w_k, and w_k A_k [tensors]
    private        Δ̃_k = Δ_k · min(1, c/‖Δ_k‖) for Δ_k, clipped on board; the server adds the noise

The server rules run unchanged: they are given R replies, R the number of survivors, that are all
equal to the mean. Every rule above is linear in its replies once the weights are known, so it makes
the same model of these as of the replies themselves. A rule that looks at single replies cannot.
"""

from collections.abc import Mapping
from math import prod

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import DataError, SettingError
from fedwatt.methods import Method
from fedwatt.methods.bounding import bounded
from fedwatt.methods.dynamic import DynamicServer
from fedwatt.methods.elastic import ElasticServer
from fedwatt.methods.nova import Nova
from fedwatt.methods.private import PrivateAverage
from fedwatt.methods.rule import Rows
from fedwatt.methods.scaffold import Scaffold
from fedwatt.methods.server import Replies
from fedwatt.models import Model
from fedwatt.privacy.fixed_point import FloatArray, Layout
from fedwatt.privacy.secure_settings import SecureSettings

MOST_STEPS = 2.0**20
"""Largest a_k, which is of the order of the local steps of a round."""


def secure_fault(method: Method) -> str | None:
    """Why a method cannot do with sums; None if it can.

    >>> from fedwatt.methods import get
    >>> secure_fault(get("fo-ri-fedavg"))
    >>> print(secure_fault(get("fedavg@krum")))
    Krum compares single replies, and a secure sum hides them. Leave out the defence, or do without
    secure aggregation.
    """
    server = method.server
    if method.defence is not None:
        return (
            f"{type(method.defence).__name__} compares single replies, and a secure sum hides "
            "them. Leave out the defence, or do without secure aggregation."
        )
    if isinstance(server, PrivateAverage) and server.clipping != "fixed":
        return (
            "adaptive clipping counts on the server whose Δ_k is longer than c, and a secure sum "
            "hides them. Use clipping = 'fixed'."
        )
    known = (DynamicServer, ElasticServer, Nova, PrivateAverage, Scaffold)
    if not server.averages and type(server) not in known:
        return (
            f"it is not known how to make {type(server).__name__} from sums. Servers that need "
            "only the mean displacement say so by `averages`."
        )
    return None


def reply_layout(
    method: Method, model: Model, settings: SecureSettings, *, vehicles: int
) -> Layout:
    """The vector of a round with `vehicles` called; `model` as the method's rules adapted it."""
    fault = secure_fault(method)
    if fault:
        raise SettingError(f"Method '{method.name}' with secure aggregation: {fault}")
    size = model.layout.size
    heaviest = 1.0 if _uniform(method) else float(settings.windows_limit)
    fields = {"weight": (1, heaviest), "delta": (size, heaviest * settings.delta_limit)}
    if isinstance(method.server, Scaffold):
        fields["control_change"] = (size, heaviest * settings.upload_limit)
    if isinstance(method.server, Nova):
        fields["accumulation"] = (1, heaviest * MOST_STEPS)
    if isinstance(method.server, ElasticServer):
        fields["trained"] = (len(model.layout.shapes), heaviest)
    return Layout.of(fields, vehicles=vehicles, bits=settings.bits)


def reply_values(
    method: Method, model: Model, delta: Tensor, windows: int, uploads: Rows, layout: Layout
) -> dict[str, FloatArray]:
    """What one vehicle adds: from Δ_k [D], n_k and its uploads without a stack of vehicles.

    A vehicle with more windows than the layout has room for does not take part: clipping its weight
    would bend the mean.
    """
    weight = 1.0 if _uniform(method) else float(windows)
    heaviest = next(field.limit for field in layout.fields if field.name == "weight")
    if weight > heaviest:
        raise DataError(
            f"A vehicle has {windows:,} training windows, and secure aggregation was set up for at "
            f"most {heaviest:,.0f}. Raise windows_limit."
        )
    step = delta.double()
    values = {"weight": np.array([weight])}
    if isinstance(method.server, PrivateAverage):
        step = bounded(step[None], method.server.clip_norm)[0]
    if isinstance(method.server, Scaffold):
        values["control_change"] = weight * _numbers(uploads["control_change"])
    if isinstance(method.server, Nova):
        a = uploads["accumulation"].double()
        step = step / a
        values["accumulation"] = weight * _numbers(a).reshape(1)
    if isinstance(method.server, ElasticServer):
        trained = uploads["trained"].double()
        step = step * _of_coordinates(trained, model)
        values["trained"] = weight * _numbers(trained)
    return values | {"delta": weight * _numbers(step)}


def mean_replies(
    method: Method,
    model: Model,
    sums: Mapping[str, FloatArray],
    *,
    survivors: int,
    population: int,
    population_windows: float,
    rng: np.random.Generator,
    participation: float = 1.0,
) -> Replies:
    """R = `survivors` replies that are the mean of those behind the `sums`, on the CPU."""
    delta, weight, uploads = means(method, model, sums)
    return Replies(
        deltas=delta.expand(survivors, -1),
        windows=torch.full((survivors,), weight / survivors, dtype=torch.float64),
        population=population,
        population_windows=population_windows,
        rng=rng,
        uploads={name: value.expand(survivors, *value.shape) for name, value in uploads.items()},
        participation=participation,
    )


def means(
    method: Method, model: Model, sums: Mapping[str, FloatArray]
) -> tuple[Tensor, float, Rows]:
    """(the Δ [D] that stands for every vehicle's, Σ w_k, and what goes with it) from sums."""
    weight = float(sums["weight"][0])
    if not weight > 0:
        raise DataError("The vehicles of a secure sum have no windows at all.")
    delta = torch.from_numpy(sums["delta"]) / weight
    uploads: Rows = {}
    if isinstance(method.server, Scaffold):
        uploads["control_change"] = torch.from_numpy(sums["control_change"]) / weight
    if isinstance(method.server, Nova):
        # Σ p_k (τ/a_k) Δ_k with τ = Σ p_k a_k; the rule finds all a_k equal and leaves it so.
        uploads["accumulation"] = torch.tensor(sums["accumulation"][0] / weight)
        delta = delta * uploads["accumulation"]
    if isinstance(method.server, ElasticServer):
        trained = torch.from_numpy(sums["trained"])
        uploads["trained"] = trained > 0
        share = torch.where(trained > 0, weight / trained, 0.0)
        delta = delta * _of_coordinates(share, model)
    return delta, weight, uploads


def _uniform(method: Method) -> bool:
    """Whether the server counts every vehicle alike."""
    server = method.server
    if isinstance(server, Scaffold | ElasticServer):
        return server.weighting == "uniform"
    return isinstance(server, DynamicServer | PrivateAverage)


def _of_coordinates(of_tensors: Tensor, model: Model) -> Tensor:
    """A number for each tensor of the model [tensors] as one for each coordinate [D]."""
    sizes = torch.tensor([prod(shape) for shape in model.layout.shapes.values()])
    return of_tensors.repeat_interleave(sizes)


def _numbers(values: Tensor) -> FloatArray:
    return values.detach().cpu().double().numpy()
