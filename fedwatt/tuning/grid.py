"""A grid of independent cells of work, in this process or over the machines of a Ray cluster.

A cell is a name and what is to be done under it, such as a method with its settings and seeds. The
work of a cell fills a folder with files (JSON, Parquet, safetensors); the folder appears under the
cell's name only once it is complete. So a grid that was stopped goes on with the cells it lacks,
and it makes no difference to the files where they were computed.

On Ray a cell is a task. Its files travel back to this machine, so the others need no folder in
common with it; a task whose machine or process is lost is done again elsewhere.
"""

import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from fedwatt import plugins
from fedwatt.errors import FedwattError, RunError, SettingError, optional
from fedwatt.files import flush, writing

Cell = TypeVar("Cell")
Work = Callable[[Cell, Any, Path], None]
"""`work(cell, shared, folder)` fills the empty `folder`; a function of a module, not of a class."""
OnDone = Callable[[str, int, int], None]
"""Called with (name of a finished cell, cells finished, cells in all)."""

MARK = "cell.txt"  # file in a finished cell's folder that says which work it was
RETRIES = 3
CONNECT_SECONDS = 10


def run_cells(
    cells: Mapping[str, Cell],
    work: Work[Cell],
    folder: Path,
    *,
    shared: Any = None,
    ray: str | None = None,
    gpus: float = 0,
    on_done: OnDone | None = None,
) -> dict[str, Path]:
    """Do the work of every cell that is not finished yet; the finished folder of each.

    `shared` is handed to every cell, and on Ray sent once to each machine. `ray` is the address of
    a cluster ("auto", "HOST:6379", or "local" for one on this machine); None: this process. On Ray
    a cell is given one thread and `gpus` GPUs. A cell with the name of a finished one must be equal
    to it.
    """
    for name in cells:
        if not name or name != Path(name).name or name.startswith("."):
            raise SettingError(f"A cell's name names a folder, which '{name}' cannot.")
    paths = {name: folder / name for name in cells}
    left = {name: cell for name, cell in cells.items() if not _finished(paths[name], cell)}
    finished = [name for name in cells if name not in left]

    def done(name: str) -> None:
        finished.append(name)
        if on_done is not None:
            on_done(name, len(finished), len(cells))

    if ray is not None and left:
        for name, files in _on_ray(left, work, shared, ray, gpus):
            with _appearing(paths[name], left[name]) as fresh, writing(paths[name]):
                for file, content in files.items():
                    (fresh / file).parent.mkdir(parents=True, exist_ok=True)
                    (fresh / file).write_bytes(content)
            done(name)
    else:
        for name, cell in left.items():
            with _appearing(paths[name], cell) as fresh:
                work(cell, shared, fresh)
            done(name)
    return paths


def fingerprint(cell: object) -> str:
    """Hash of a cell's text: equal for equal dataclasses, texts, numbers and tuples of them."""
    return sha256(repr(cell).encode()).hexdigest()[:32]


def _finished(path: Path, cell: object) -> bool:
    if not path.exists():
        return False
    try:
        known = (path / MARK).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise RunError(f"{path} is not the folder of a finished cell. Delete it.") from error
    if known != fingerprint(cell):
        raise RunError(f"{path} was made with other settings. Delete it, or choose another folder.")
    return True


@contextmanager
def _appearing(path: Path, cell: object) -> Iterator[Path]:
    """Yield a fresh folder that gets its name if the body succeeds, and is removed otherwise."""
    fresh = path.with_name(f".{path.name}.part")
    with writing(path):
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
    try:
        yield fresh
        with writing(path):
            (fresh / MARK).write_text(fingerprint(cell) + "\n", encoding="utf-8")
            for file in fresh.rglob("*"):
                flush(file)
            fresh.rename(path)
            flush(path.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _on_ray(
    cells: Mapping[str, Cell], work: Work[Cell], shared: Any, address: str, gpus: float
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield (name, files) of each cell, in the order in which they finish."""
    ray = library()
    with connected(address):
        # Ray retries what was lost with its machine or process; an exception is an answer.
        task = ray.remote(max_retries=RETRIES, num_cpus=1, num_gpus=gpus)(_task)
        common = ray.put(shared)
        wanted = versions()
        user_code = plugins.loaded_files()
        names = {
            task.remote(work, cell, common, wanted, user_code): name for name, cell in cells.items()
        }
        waiting = list(names)
        try:
            while waiting:
                (first, *_), waiting = ray.wait(waiting, num_returns=1)
                yield names[first], _answer(ray, first, names[first])
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)


def _task(
    work: Work[Cell], cell: Cell, shared: Any, wanted: dict[str, str], user_code: dict[str, bytes]
) -> dict[str, bytes]:
    """Return a cell on a machine of the cluster: the files that its work made.

    `user_code` are files of methods and models that this machine need not have.
    """
    import torch

    plugins.carry(user_code)

    refuse_other_versions(wanted)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="fedwatt-") as scratch:
        work(cell, shared, Path(scratch))
        return {
            str(file.relative_to(scratch)): file.read_bytes()
            for file in sorted(Path(scratch).rglob("*"))
            if file.is_file()
        }


def refuse_other_versions(wanted: Mapping[str, str]) -> None:
    """Raise if this machine has others than those `wanted`."""
    if versions() != wanted:
        here = {name: own for name, own in versions().items() if own != wanted[name]}
        raise SettingError(
            f"The machine '{platform.node()}' has {here}, this one "
            f"{ {name: wanted[name] for name in here} }. Install the same versions on all machines."
        )


def versions() -> dict[str, str]:
    """Return the versions that must agree for results to be the same on all machines."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("fedwatt", "torch", "numpy")
    }


def _answer(ray: Any, reference: Any, name: str) -> dict[str, bytes]:
    try:
        files: dict[str, bytes] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FedwattError):
            raise error.cause from error
        raise
    except ray.exceptions.RayError as error:
        raise RunError(
            f"The cell '{name}' was lost {RETRIES + 1} times with its machine or process: "
            f"{str(error).splitlines()[0]} Finished cells are kept; continue with --resume."
        ) from error
    return files


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect to a cluster, or use the present connection.

    Around several grids it keeps the processes of the first one for the others.
    """
    ray = library()
    if ray.is_initialized():
        yield
        return
    where = {} if address == "local" else {"address": address}
    try:
        _knock(address)
        ray.init(**where, logging_level="ERROR", log_to_driver=False, include_dashboard=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise SettingError(
            f"No Ray cluster answers at '{address}': {reason}. Start one with 'ray start --head', "
            "or use 'local' for one on this machine."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError at once if nobody listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def library() -> Any:
    """Import Ray without its usage reports, or raise a SettingError that names the extra."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return optional("ray", "A grid on Ray needs Ray: pip install 'fedwatt[cluster]'.", SettingError)
