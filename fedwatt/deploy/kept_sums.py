"""Totals of the last secure sums of a run, in RUN/sums, by what they are for.

A vehicle answers a question under masks once. A server that is killed after a sum and before its
checkpoint could not ask again, so it keeps what it learned and goes on with that.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fedwatt.deploy.made import part_bytes, part_of
from fedwatt.files import write_atomically

KEPT: Final = 64
"""Sums: more than learning hills and routes takes."""
SURVIVORS: Final = "survivors"
EXCHANGE: Final = "exchange"
PARTS: Final = "parts"


@dataclass(frozen=True)
class KeptSum:
    """A sum as it was kept."""

    sums: dict[str, NDArray[Any]]
    survivors: tuple[str, ...]
    exchange: bytes
    """Digest of its terms."""
    parts: tuple[tuple[bytes, int], ...]
    """The same of each of its parts, and their vehicles."""


def keep_sum(
    run: Path,
    purpose: str,
    sums: Mapping[str, NDArray[Any]],
    survivors: tuple[str, ...],
    exchange: bytes,
    parts: tuple[tuple[bytes, int], ...] = (),
) -> None:
    """Write down what a sum for `purpose` brought, and the digests of its terms and its parts."""
    names = np.frombuffer(json.dumps(survivors).encode(), dtype=np.uint8)
    digest = np.frombuffer(exchange, dtype=np.uint8)
    table: dict[str, NDArray[Any]] = {SURVIVORS: names, EXCHANGE: digest}
    if parts:
        rows = [np.frombuffer(part_bytes(*part), dtype=np.uint8) for part in parts]
        table[PARTS] = np.stack(rows)
    table |= {f"sum.{name}": np.asarray(own) for name, own in sums.items()}
    path = _path(run, purpose)
    write_atomically(path, lambda file: save_file(table, file))
    for old in sorted(path.parent.glob("*.safetensors"), key=_age)[:-KEPT]:
        old.unlink(missing_ok=True)


def recall_sum(run: Path, purpose: str) -> KeptSum | None:
    """What a sum for `purpose` brought before; None: there was none that can be read."""
    try:
        table = load_file(_path(run, purpose))
        survivors = tuple(json.loads(table.pop(SURVIVORS).tobytes()))
        exchange = table.pop(EXCHANGE).tobytes()
        parts = tuple(part_of(row.tobytes()) for row in table.pop(PARTS, ()))
    except (OSError, SafetensorError, ValueError, KeyError):
        return None
    sums = {name.removeprefix("sum."): own for name, own in table.items()}
    return KeptSum(sums, survivors, exchange, parts)


def _path(run: Path, purpose: str) -> Path:
    return run / "sums" / f"{sha256(purpose.encode()).hexdigest()[:32]}.safetensors"


def _age(path: Path) -> float:
    return path.stat().st_mtime
