"""The field of hills that a relay gives to its vehicles, on its disk: ROSTER/field.safetensors."""

from pathlib import Path
from typing import Final

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedwatt.deploy.configuration import read_configuration
from fedwatt.deploy.hills_on_server import PublishedHills
from fedwatt.deploy.messages import Content
from fedwatt.deploy.questions import value
from fedwatt.errors import DataError
from fedwatt.files import write_atomically
from fedwatt.terrain.encoding import field_from_arrays
from fedwatt.terrain.grid import Grid

FIELD: Final = "field.safetensors"
SAID: Final = ("run", "config")
"""What the question says besides the field."""


def keep_field(folder: Path, question: Content) -> None:
    """Write down the field that a question brings; DataError if it brings none."""
    about = {name: str(value(question, name, str)) for name in SAID}
    arrays = {name: np.ascontiguousarray(array) for name, array in question.arrays.items()}
    write_atomically(folder / FIELD, lambda file: save_file(arrays, file, metadata=about))


def recall_field(folder: Path) -> PublishedHills | None:
    """The field, to be offered to vehicles; None where there is none that can be read."""
    try:
        with safe_open(folder / FIELD, framework="numpy") as file:
            about = dict(file.metadata())
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        config = read_configuration(about["config"])
        shared = field_from_arrays(arrays, Grid(cell_m=config.terrain.cell_m))
    except (OSError, SafetensorError, KeyError, DataError):
        return None
    return PublishedHills(shared, about, config.deploy.round_seconds)
