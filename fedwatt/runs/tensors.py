"""Tensors on disk, whole or not there at all."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from fedwatt.files import write_atomically


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Named tensors as a safetensors file, atomically."""

    def write(file: Path) -> None:
        try:
            save_file(dict(tensors), file, metadata=dict(metadata or {}))
        except SafetensorError as error:  # its own word for a full disk
            raise OSError(str(error)) from error

    write_atomically(path, write)
