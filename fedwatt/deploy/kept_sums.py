"""Totals of the last secure sums of a run, in RUN/sums, by what they are for.

A vehicle answers a question under masks once. A server that is killed after a sum and before its
checkpoint could not ask again, so it keeps what it learned and goes on with that.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fedwatt.files import write_atomically
from fedwatt.privacy.fixed_point import FloatArray

KEPT: Final = 64
"""Sums: more than learning hills and routes takes."""
SURVIVORS: Final = "survivors"
EXCHANGE: Final = "exchange"


def keep_sum(
    run: Path,
    purpose: str,
    sums: Mapping[str, FloatArray],
    survivors: tuple[str, ...],
    exchange: bytes,
) -> None:
    """Write down what a sum for `purpose` brought, and the digest of its terms."""
    names = np.frombuffer(json.dumps(survivors).encode(), dtype=np.uint8)
    digest = np.frombuffer(exchange, dtype=np.uint8)
    table: dict[str, NDArray[Any]] = {SURVIVORS: names, EXCHANGE: digest}
    table |= {f"sum.{name}": np.asarray(own) for name, own in sums.items()}
    path = _path(run, purpose)
    write_atomically(path, lambda file: save_file(table, file))
    for old in sorted(path.parent.glob("*.safetensors"), key=_age)[:-KEPT]:
        old.unlink(missing_ok=True)


def recall_sum(
    run: Path, purpose: str
) -> tuple[dict[str, FloatArray], tuple[str, ...], bytes] | None:
    """What a sum for `purpose` brought before; None: there was none that can be read."""
    try:
        table = load_file(_path(run, purpose))
        survivors = tuple(json.loads(table.pop(SURVIVORS).tobytes()))
        exchange = table.pop(EXCHANGE).tobytes()
    except (OSError, SafetensorError, ValueError, KeyError):
        return None
    return {name.removeprefix("sum."): own for name, own in table.items()}, survivors, exchange


def _path(run: Path, purpose: str) -> Path:
    return run / "sums" / f"{sha256(purpose.encode()).hexdigest()[:32]}.safetensors"


def _age(path: Path) -> float:
    return path.stat().st_mtime
