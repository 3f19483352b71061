"""A level model as one vector: of a finished run on the server, and as a vehicle kept its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import RunError
from fedwatt.models.layout import Layout
from fedwatt.runs.model_file import MODEL_FILE, read_model
from fedwatt.runs.own_models import read_own_file


def best_weights(run: Path, label: str, seed: int, layout: Layout) -> NDArray[Any]:
    """The best model [D] of the method `label` in a finished run folder."""
    return flat(read_model(run, label, "best", seed), layout, run / MODEL_FILE)


def own_weights(file: Path, vehicle: str, layout: Layout) -> NDArray[Any]:
    """The model [D] that a vehicle made its own and kept in `file`; RunError if it is another."""
    return flat(read_own_file(file, vehicle), layout, file)


def flat(parts: Mapping[str, NDArray[Any]], layout: Layout, file: Path) -> NDArray[Any]:
    """Tensors by name as one vector [D]; RunError if they are not those of the network."""
    if {name: part.shape for name, part in parts.items()} != layout.shapes:
        raise RunError(f"{file} holds another network.")
    return np.concatenate([parts[name].reshape(-1) for name in layout.shapes])
