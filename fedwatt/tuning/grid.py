"""A grid of independent cells, computed in this process or on the machines of a Ray cluster.

A cell is a named piece of work, such as a method with its settings and seeds. It fills a folder
with files (JSON, Parquet, safetensors), which gets the cell's name once it is complete. A grid that
was stopped continues with the missing cells, and its files do not depend on where cells run.

On Ray a cell is a task. Its files are sent back to this machine, so no shared folder is needed; a
task whose machine or process is lost runs again elsewhere.
"""

import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
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

MARK = "cell.txt"  # file in a finished cell's folder with the cell's fingerprint
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
    """Run every cell that is not finished yet and return the folder of each cell.

    `shared` is passed to every cell, and on Ray sent once to each machine. `ray` is the address of
    a cluster ("auto", "HOST:6379", or "local" for one on this machine); None: this process. On Ray
    a cell has one thread and `gpus` GPUs. A finished folder of the same name must hold an equal
    cell.
    """
    for name in cells:
        if not name or name != Path(name).name or name.startswith("."):
            raise SettingError(f"A cell's name names a folder, which '{name}' cannot.")
    paths = {name: folder / name for name in cells}
    missing = {name: cell for name, cell in cells.items() if not _finished(paths[name], cell)}
    if ray is None or not missing:
        results = _in_process(missing, work, shared, paths)
    else:
        results = _on_ray(missing, work, shared, paths, ray, gpus)
    for count, name in enumerate(results, start=len(cells) - len(missing) + 1):
        if on_done is not None:
            on_done(name, count, len(cells))
    return paths


def _in_process(
    cells: Mapping[str, Cell], work: Work[Cell], shared: Any, paths: Mapping[str, Path]
) -> Iterator[str]:
    """Yield the name of each cell as it is finished."""
    for name, cell in cells.items():
        with _appearing(paths[name], cell) as folder:
            work(cell, shared, folder)
        yield name


def fingerprint(cell: object) -> str:
    """Hash a cell's `repr`: equal for equal dataclasses, texts, numbers and tuples of them."""
    return sha256(repr(cell).encode()).hexdigest()[:32]


def _finished(path: Path, cell: object) -> bool:
    if not path.exists():
        return False
    try:
        stored = (path / MARK).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise RunError(f"{path} is not the folder of a finished cell. Delete it.") from error
    if stored != fingerprint(cell):
        raise RunError(f"{path} was made with other settings. Delete it, or choose another folder.")
    return True


@contextmanager
def _appearing(path: Path, cell: object) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` if the body succeeds, else removed."""
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
    cells: Mapping[str, Cell],
    work: Work[Cell],
    shared: Any,
    paths: Mapping[str, Path],
    address: str,
    gpus: float,
) -> Iterator[str]:
    """Yield the name of each cell as it is finished, in any order."""
    ray = library()
    with connected(address):
        # Ray retries tasks that were lost with their machine or process, not those that raise.
        task = ray.remote(max_retries=RETRIES, num_cpus=1, num_gpus=gpus)(_task)
        common = (ray.put(shared), versions(), plugins.loaded_files())
        names = {task.remote(work, cell, *common): name for name, cell in cells.items()}
        waiting = list(names)
        try:
            while waiting:
                (first, *_), waiting = ray.wait(waiting, num_returns=1)
                name = names[first]
                files = result_of(ray, first, f"The cell '{name}'")
                with _appearing(paths[name], cells[name]) as folder, writing(paths[name]):
                    for file, content in files.items():
                        (folder / file).parent.mkdir(parents=True, exist_ok=True)
                        (folder / file).write_bytes(content)
                yield name
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)


def _task(
    work: Work[Cell], cell: Cell, shared: Any, required: dict[str, str], user_code: dict[str, bytes]
) -> dict[str, bytes]:
    """Run a cell on a machine of the cluster and return the files that it wrote.

    `user_code` are files of methods and models, which this machine may not have.
    """
    import torch

    plugins.carry(user_code)
    refuse_other_versions(required)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="fedwatt-") as scratch:
        work(cell, shared, Path(scratch))
        return {
            str(file.relative_to(scratch)): file.read_bytes()
            for file in sorted(Path(scratch).rglob("*"))
            if file.is_file()
        }


def refuse_other_versions(required: Mapping[str, str]) -> None:
    """Raise if this machine has other versions than those `required`."""
    here = {name: present for name, present in versions().items() if present != required[name]}
    if here:
        expected = {name: required[name] for name in here}
        raise SettingError(
            f"The machine '{platform.node()}' has {here}, this one {expected}. Install the same "
            "versions on all machines."
        )


@cache
def versions() -> dict[str, str]:
    """Return the versions that must agree for results to be the same on all machines."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("fedwatt", "torch", "numpy")
    }


def result_of(ray: Any, tasks: Any, name: str) -> Any:
    """Return what one task or a list of tasks returned; raise the errors of fedwatt as they are."""
    try:
        return ray.get(tasks)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FedwattError):
            raise error.cause from error
        raise
    except ray.exceptions.RayError as error:
        raise RunError(
            f"{name} was lost {RETRIES + 1} times with its machine or process: "
            f"{str(error).splitlines()[0]} Completed work is stored; continue with --resume."
        ) from error


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect to a cluster, or use the present connection.

    Several grids inside one connection share its processes.
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
    """Raise OSError at once if no server listens at HOST:PORT; Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def library() -> Any:
    """Return Ray with usage reports switched off; refuse with an install command without it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return optional("ray", "A grid on Ray needs Ray: pip install 'fedwatt[cluster]'.", SettingError)
