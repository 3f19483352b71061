"""Arrays and a few texts about them in one file, whole or not there at all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedwatt.errors import DataError
from fedwatt.files import write_atomically

Arrays = dict[str, NDArray[Any]]


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> None:
    """Named arrays, and named texts `about` them."""
    table = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_atomically(path, lambda file: save_file(table, file, metadata=dict(about)))


def read_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """What `write_arrays` wrote; DataError if it is not there, or damaged."""
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return arrays, dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
