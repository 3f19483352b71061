"""Files: written whole or not at all, locked against other processes, read within bounds.

What a stranger may have written is read here: `parse_json` and `parse_toml` refuse text that nests
too deeply, and `inflate` and `Bounded` refuse compressed content that grows beyond its bound.
"""

import fcntl
import gzip
import json
import os
import time
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from fedwatt.errors import RunError

LOOKS = 5
"""How often a lock is tried before it counts as another process's."""


MOST_TIMES = 100
"""Times its size to which a compressed recording may unpack."""
DEEPEST = 100
"""Levels to which arrays and tables of a document may be nested."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; JSONDecodeError if it is none or nests too deeply."""
    try:
        value = json.loads(text)
        _refuse_deep(value)
    except RecursionError:
        excerpt = text if isinstance(text, str) else ""
        raise json.JSONDecodeError(_TOO_DEEP, excerpt, 0) from None
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table of a TOML text; TOMLDecodeError if it is none or nests too deeply."""
    try:
        table = tomllib.loads(text)
        _refuse_deep(table)
    except RecursionError:
        raise tomllib.TOMLDecodeError(_TOO_DEEP) from None
    return table


_TOO_DEEP = f"it nests deeper than {DEEPEST} levels"


def _refuse_deep(value: object) -> None:
    """Raise RecursionError if `value` nests deeper than `DEEPEST`; without recursion itself."""
    level = [value]
    for _ in range(DEEPEST + 1):
        containers = [part for part in level if isinstance(part, dict | list) and part]
        if not containers:
            return
        level = [
            part
            for container in containers
            for part in (container.values() if isinstance(container, dict) else container)
            if isinstance(part, dict | list)
        ]
    raise RecursionError


def inflate(content: bytes, most: int) -> bytes:
    """Return zlib-compressed `content` unpacked; ValueError if that is more than `most` bytes."""
    stream = zlib.decompressobj()
    unpacked = stream.decompress(content, most + 1)
    if len(unpacked) > most:
        raise ValueError(f"it unpacks to more than {most:,} bytes")
    if not stream.eof:
        raise ValueError("it is cut off")
    return unpacked


def unpacked_bound(file: Path) -> int:
    """Return the bytes to which a compressed file of telemetry may unpack.

    Recordings shrink to a tenth or a thirtieth; `MOST_TIMES` of a small file may be 64 MB.
    """
    return max(64_000_000, MOST_TIMES * file.stat().st_size)


class Bounded:
    """A readable stream that ends in OSError after `most` bytes."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, most: int) -> None:
        self._stream = stream
        self._most = most
        self._left = most

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, or all that are left."""
        requested = self._left + 1 if size < 0 else min(size, self._left + 1)
        piece = self._stream.read(requested)
        self._left -= len(piece)
        if self._left < 0:
            raise OSError(f"it unpacks to more than {self._most:,} bytes")
        return piece


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failed write into one sentence about `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(
            f"Cannot write {path}: {reason}. What was complete is kept; "
            "put it right and continue with --resume."
        ) from error


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then give it its name in one step."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        try:
            write(temporary)
            flush(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, atomically."""

    def write(file: Path) -> None:
        file.write_bytes(content)

    write_atomically(path, write)


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read from the moment it exists."""

    def write(file: Path) -> None:
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(content)

    write_atomically(path, write)


def append_rows(path: Path, rows: Iterable[object]) -> None:
    """Add rows to a file, a line of JSON each; they are on the disk when this returns.

    What is there is not written again. A line that a loss of power cut short is taken away first.
    """
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        with path.open("ab") as file:
            file.truncate(_complete_size(path))
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())
        if new:
            flush(path.parent)


def read_rows(path: Path) -> list[Any]:
    """Return the rows of a file that were written to their end; none where there is no file."""
    if not path.exists():
        return []
    # Not splitlines: names of vehicles may hold what it takes for the end of a line, as U+2028.
    lines = path.read_bytes()[: _complete_size(path)].decode().split("\n")[:-1]
    return [parse_json(line) for line in lines]


def _complete_size(path: Path) -> int:
    """Count the bytes up to the end of the last complete line."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        while at > 0:
            begin = max(0, at - 4096)
            file.seek(begin)
            if (end := file.read(at - begin).rfind(b"\n")) >= 0:
                return begin + end + 1
            at = begin
    return 0


def oldest_first(paths: Iterable[Path]) -> list[Path]:
    """Sort files or folders by the time they were last written."""
    return sorted(paths, key=lambda path: path.stat().st_mtime)


@contextmanager
def holding(folder: Path, what: str, taken: str) -> Iterator[None]:
    """Hold a lock for `what` in `folder`; raise RunError with the sentence `taken` if it is held.

    The lock ends with the process, however that ends.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = _lock_file(folder, what).open("a")
    with file:
        # Whoever looks whether it is held (`is_held`) has it for a moment.
        for left in reversed(range(LOOKS)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if not left:
                    raise RunError(taken) from error
                time.sleep(0.02)
        yield


def is_held(folder: Path, what: str) -> bool:
    """Return whether some process does `what` in `folder` just now."""
    path = _lock_file(folder, what)
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lock_file(folder: Path, what: str) -> Path:
    return folder / f".{what}.lock"


def flush(path: Path) -> None:
    """Make sure that a file or folder has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
