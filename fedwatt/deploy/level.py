"""A level model as one vector: of a finished run on the server, and as a vehicle kept its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedwatt.errors import RunError
from fedwatt.models.layout import Layout
from fedwatt.runs.own_models import read_own_file


def best_weights(run: Path, label: str, seed: int, layout: Layout) -> NDArray[Any]:
    """The best model [D] of the method `label` in a finished run folder."""
    file, prefix = run / "model.safetensors", f"{label}/best/seed-{seed}/"
    try:
        found = load_file(file)
    except (OSError, SafetensorError) as problem:
        raise RunError(
            f"{file} cannot be read: {problem}. Delete {run / 'environment.json'}: --resume then "
            "makes it again from its checkpoints."
        ) from problem
    parts = {n.removeprefix(prefix): part for n, part in found.items() if n.startswith(prefix)}
    return flat(parts, layout, file)


def own_weights(file: Path, vehicle: str, layout: Layout) -> NDArray[Any]:
    """The model [D] that a vehicle made its own and kept in `file`; RunError if it is another."""
    return flat(read_own_file(file, vehicle), layout, file)


def flat(parts: Mapping[str, NDArray[Any]], layout: Layout, file: Path) -> NDArray[Any]:
    """Tensors by name as one vector [D]; RunError if they are not those of the network."""
    if {name: part.shape for name, part in parts.items()} != layout.shapes:
        raise RunError(f"{file} holds another network.")
    return np.concatenate([parts[name].reshape(-1) for name in layout.shapes])
