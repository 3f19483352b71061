"""Keep the windows of a fleet on disk when they do not fit in memory.

Ten thousand vehicles with forty trips are 10 GB. While such a fleet is built, one vehicle at a
time, its arrays are appended to temporary files, one file per kind of array. The files are then
mapped into memory: a vehicle's arrays are views of them, and only pages that are read are loaded.
`release` gives these pages back to the system, so that a process holds only the data of the
vehicles that are training.

The files have no name and vanish with the process, however it ends. They are in the folder of the
environment variable TMPDIR, or else in the system's folder for temporary files.
"""

import mmap
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import DataError
from fedwatt.windows.splits import SPLITS, natural_key

if TYPE_CHECKING:
    from fedwatt.windows.client import Client

DENSE_BYTES = 2**29  # fleets up to this size (512 MiB) stay in memory

KINDS: Mapping[str, type] = {
    "series": np.float32,
    **{f"{split} starts": np.int64 for split in SPLITS},
    **{f"{split} ends": np.int64 for split in SPLITS},
    **{f"{split} labels": np.float32 for split in SPLITS},
}
"""The files of a fleet and the type of the numbers in them."""


@dataclass(frozen=True, eq=False)
class Mapped:
    """The concatenated windows of all vehicles, in files mapped into memory."""

    series: NDArray[np.float32]
    """[seconds of all vehicles, features]."""
    starts: Mapping[str, NDArray[np.int64]]
    """Split -> first second of each window in `series`, [W]."""
    labels: Mapping[str, NDArray[np.float32]]
    """Split -> scaled energies, [W]."""
    offsets: Mapping[str, NDArray[np.int64]]
    """Split -> vehicle k's windows are offsets[k]:offsets[k+1]; [K+1]."""
    clients: tuple["Client", ...]
    """The vehicles, their arrays views of the files."""
    files: tuple[mmap.mmap, ...]

    def holds(self, clients: Sequence["Client"]) -> bool:
        """Return whether the arrays of these vehicles are the views of the files."""
        return len(clients) == len(self.clients) and all(
            client.series is mapped.series
            and client.ends is mapped.ends
            and client.labels is mapped.labels
            for client, mapped in zip(clients, self.clients, strict=True)
        )

    def release(self) -> None:
        """Give the memory of pages that were read back; they are loaded again when needed."""
        for file in self.files:
            file.madvise(mmap.MADV_DONTNEED)


def gather_clients(clients: Iterable["Client"]) -> tuple[tuple["Client", ...], Mapped | None]:
    """Clients in natural order of their names, and their windows on disk if they are too large.

    Consumes them one at a time.
    """
    loaded: list[Client] = []
    size = 0
    spill = None
    with ExitStack() as open_files:
        for client in clients:
            size += _bytes(client)
            if spill is None and size > DENSE_BYTES:
                spill = _GrowingFiles(open_files)
                for earlier in loaded:
                    spill.add(earlier)
                loaded.clear()
            if spill is None:
                loaded.append(client)
            else:
                spill.add(client)
        if spill is not None:
            mapped = spill.mapped()
            return mapped.clients, mapped
    return tuple(sorted(loaded, key=lambda client: natural_key(client.name))), None


class _GrowingFiles:
    """Files to which vehicles are appended."""

    def __init__(self, open_files: ExitStack) -> None:
        with _writing():
            # Unbuffered: a full disk is noticed where something is written, not where it is closed.
            self.files: dict[str, IO[bytes]] = {
                kind: open_files.enter_context(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
                for kind in KINDS
            }
        self.clients: list[Client] = []
        """Without their arrays."""
        self.seconds = [0]
        self.offsets: dict[str, list[int]] = {split: [0] for split in SPLITS}

    def add(self, client: "Client") -> None:
        """Append the arrays of a vehicle."""
        if self.clients and natural_key(client.name) < natural_key(self.clients[-1].name):
            raise DataError(
                f"Vehicle '{client.name}' comes after '{self.clients[-1].name}', and a fleet that "
                "is too large to be sorted in memory must come in natural order of its names."
            )
        with _writing():
            self._write("series", client.series)
            for split in SPLITS:
                ends = client.ends[split]
                self._write(f"{split} ends", ends)
                self._write(f"{split} starts", ends - (client.window - 1) + self.seconds[-1])
                self._write(f"{split} labels", client.labels[split])
                self.offsets[split].append(self.offsets[split][-1] + len(ends))
        self.seconds.append(self.seconds[-1] + len(client.series))
        nothing: dict[str, Any] = {"ends": {}, "labels": {}, "series": client.series[:0].copy()}
        self.clients.append(replace(client, **nothing))

    def _write(self, kind: str, values: NDArray[Any]) -> None:
        left = np.ascontiguousarray(values, KINDS[kind]).reshape(-1).view(np.uint8)
        while left.size:
            left = left[self.files[kind].write(left.data) :]

    def mapped(self) -> Mapped:
        """Return the vehicles with views of the files in place of their arrays."""
        with _writing():
            # Shared, not copied on write: it reserves no memory. Nobody writes to it.
            write = mmap.ACCESS_WRITE
            maps = {k: mmap.mmap(file.fileno(), 0, access=write) for k, file in self.files.items()}
        arrays: dict[str, NDArray[Any]] = {k: np.frombuffer(maps[k], KINDS[k]) for k in KINDS}
        series = arrays["series"].reshape(self.seconds[-1], -1)
        clients = tuple(
            replace(
                client,
                series=series[self.seconds[k] : self.seconds[k + 1]],
                ends=self._views(arrays, "ends", k),
                labels=self._views(arrays, "labels", k),
            )
            for k, client in enumerate(self.clients)
        )
        return Mapped(
            series,
            {split: arrays[f"{split} starts"] for split in SPLITS},
            {split: arrays[f"{split} labels"] for split in SPLITS},
            {split: np.array(self.offsets[split]) for split in SPLITS},
            clients,
            tuple(maps.values()),
        )

    def _views(
        self, arrays: Mapping[str, NDArray[Any]], kind: str, vehicle: int
    ) -> dict[str, NDArray[Any]]:
        return {
            split: arrays[f"{split} {kind}"][offsets[vehicle] : offsets[vehicle + 1]]
            for split, offsets in self.offsets.items()
        }


def _bytes(client: "Client") -> int:
    windows = sum(client.ends[split].nbytes + client.labels[split].nbytes for split in SPLITS)
    return client.series.nbytes + windows


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"Could not write the fleet's windows below {tempfile.gettempdir()}: "
            f"{error.strerror or error}. Free some space, or set TMPDIR to a folder that has some."
        ) from error
