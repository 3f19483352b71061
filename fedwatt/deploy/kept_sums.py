"""Totals of the last secure sums of a run, in RUN/sums, by what they are for.

A vehicle answers a question under masks once. A server that is killed after a sum and before its
checkpoint could not ask again, so it keeps what it learned and goes on with that.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedwatt.deploy.array_file import read_arrays, write_arrays
from fedwatt.files import oldest_first

KEPT: Final = 64
"""Sums: more than learning hills and routes takes."""


@dataclass(frozen=True)
class SecretSum:
    """What a sum brought: totals over its survivors, and whose messages could not be used."""

    sums: Mapping[str, NDArray[Any]]
    survivors: tuple[str, ...]
    exchange: bytes = b""
    """Digest of its terms; of its purpose where it may be of several parts."""
    parts: tuple[bytes, ...] = ()
    """Each part that masks were made for (`check_words.part_bytes`), where it may be of several."""
    rejected: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What is recorded of each vehicle where replies are seen."""


def keep_sum(run: Path, purpose: str, found: SecretSum) -> None:
    """Write down what a sum for `purpose` brought, but for what is seen of single vehicles."""
    table = {f"sum.{name}": own for name, own in found.sums.items()}
    table["survivors"] = _numbers(json.dumps(found.survivors).encode())
    table["exchange"] = _numbers(found.exchange)
    if found.parts:
        table["parts"] = np.stack([_numbers(part) for part in found.parts])
    path = _path(run, purpose)
    write_arrays(path, table, {})
    for old in oldest_first(path.parent.glob("*.safetensors"))[:-KEPT]:
        old.unlink(missing_ok=True)


def recall_sum(run: Path, purpose: str) -> SecretSum | None:
    """What a sum for `purpose` brought before; None: there was none that can be read."""
    try:
        table, _ = read_arrays(_path(run, purpose))
        survivors = tuple(json.loads(table.pop("survivors").tobytes()))
        exchange = table.pop("exchange").tobytes()
    except (ValueError, KeyError):
        return None
    parts = tuple(part.tobytes() for part in table.pop("parts", ()))
    sums = {name.removeprefix("sum."): own for name, own in table.items()}
    return SecretSum(sums, survivors, exchange, parts)


def _numbers(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8)


def _path(run: Path, purpose: str) -> Path:
    return run / "sums" / f"{sha256(purpose.encode()).hexdigest()[:32]}.safetensors"
