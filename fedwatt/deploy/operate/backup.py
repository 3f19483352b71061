"""A key store and its runs in one file, taken while the server runs, and put back elsewhere.

    backup.tar.gz   store/…, runs/NAME/…, backup.json (written last: what is in it)

gzip's checksum shows damage.

Files of a run are replaced whole or only added to, so each can be copied at any moment, and a line
that is just being written is left for the next backup. Checkpoints are copied first, the newest of
them before the others: one that is removed meanwhile is damaged in the backup, and a run goes on
from one that is not. deployment.json is copied last: it counts noisy models and secure sums, and
must not be older than the checkpoint that it is restored with. Private keys are left out unless
they are asked for.
"""

import gzip
import json
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path, PurePosixPath

from fedwatt import __version__
from fedwatt.deploy.plan.certificates import KEY
from fedwatt.errors import RunError
from fedwatt.files import flush, parse_json, write_atomically, writing

CONTENTS = "backup.json"
CHECKPOINT = "round-"
LAST = "deployment.json"
FLOWERS = "flower"
"""Flower's own folder in a store, which a server makes anew."""

DAMAGE = (OSError, EOFError, zlib.error, tarfile.TarError)


@dataclass(frozen=True)
class Contents:
    """The content of a backup."""

    version: str
    """Of fedwatt."""
    at: str
    runs: tuple[str, ...]
    files: tuple[str, ...]
    """Their paths in the backup."""
    left_out: tuple[str, ...] = ()
    """Private keys that are not in it."""


def back_up(target: Path, store: Path | None, runs: Sequence[Path], *, keys: bool) -> Contents:
    """Write a store and runs into the file `target`, which only its owner can read."""
    names = [run.resolve().name for run in runs]
    for folder in (*([store] if store else []), *runs):
        if not folder.is_dir():
            raise RunError(f"There is no folder {folder} to back up.")
    if len(set(names)) < len(names):
        raise RunError(f"Two of these runs are called '{max(names, key=names.count)}'. Rename one.")

    def write(part: Path) -> None:
        part.touch(mode=0o600)
        files: list[str] = []
        left_out: list[str] = []
        missing: list[str] = []
        with tarfile.open(part, "w:gz", compresslevel=1) as archive:
            for name, path in _files(store, runs):
                if path.name == KEY and not keys:
                    left_out.append(name)
                    continue
                try:
                    content = path.read_bytes()
                    mode = path.stat().st_mode & 0o777
                except FileNotFoundError:  # an old checkpoint that was removed meanwhile
                    missing.append(name)
                    continue
                if path.suffix == ".jsonl":
                    content = content[: content.rfind(b"\n") + 1]
                files.append(name)
                _add(archive, name, content, mode)
            _refuse_torn(files, missing)
            at = datetime.now(UTC).isoformat(timespec="seconds")
            contents = Contents(__version__, at, tuple(names), tuple(files), tuple(left_out))
            text = json.dumps(asdict(contents), indent=1, ensure_ascii=False)
            _add(archive, CONTENTS, text.encode(), 0o600)

    write_atomically(target, write)
    return read_contents(target)


def _files(store: Path | None, runs: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield files with their names in the backup, in the order in which they are to be copied."""
    if store is not None:
        for path in _inside(store):
            inside = path.relative_to(store)
            if inside.parts[0] != FLOWERS:
                yield f"store/{inside.as_posix()}", path
    for run in runs:
        for path in sorted(_inside(run), key=_turn, reverse=True):
            yield f"runs/{run.resolve().name}/{path.relative_to(run).as_posix()}", path


def _turn(path: Path) -> tuple[bool, bool, str]:
    """Return a key whose descending order begins with the newest checkpoint and ends with LAST."""
    return path.parent.name.startswith(CHECKPOINT), path.name != LAST, str(path)


def _inside(folder: Path) -> list[Path]:
    """Return the files of a folder that are neither locks nor being written just now."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def _refuse_torn(taken: Iterable[str], missing: Sequence[str]) -> None:
    """Raise RunError unless one checkpoint of each method was copied completely."""
    torn = {PurePosixPath(name).parent for name in missing}
    folders = {PurePosixPath(name).parent for name in (*taken, *missing)}
    checkpoints = {folder for folder in folders if folder.name.startswith(CHECKPOINT)}
    complete = {folder.parent for folder in checkpoints - torn}
    if broken := {folder.parent for folder in checkpoints} - complete:
        raise RunError(
            f"No checkpoint of {min(broken)} stayed long enough to be copied. Try again."
        )


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    entry.mtime = int(datetime.now(UTC).timestamp())
    archive.addfile(entry, BytesIO(content))


def read_contents(backup: Path) -> Contents:
    """Return the declared content of a backup; raise RunError if it is none."""
    try:
        with gzip.open(backup) as content:
            while content.read(2**20):  # its checksum is at its end
                pass
        with tarfile.open(backup, "r:gz") as archive:
            file = archive.extractfile(CONTENTS)
            table = parse_json(file.read() if file else "")
        return Contents(**table | {n: tuple(table[n]) for n in ("runs", "files", "left_out")})
    except (*DAMAGE, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{backup} is not a whole backup ({error}). 'fedwatt deploy backup' writes one."
        ) from error


def restore(backup: Path, folder: Path) -> Contents:
    """Put a backup into a new folder: FOLDER/store and FOLDER/runs/NAME, or nothing at all."""
    contents = read_contents(backup)
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty. Choose a new folder.")
    part = folder.with_name(f".{folder.name}.part")
    with writing(part):
        part.mkdir(parents=True, exist_ok=False, mode=0o700)
    try:
        with writing(part), tarfile.open(backup, "r:gz") as archive:
            archive.extractall(part, filter="data")
        (part / CONTENTS).unlink()
        if missing := [name for name in contents.files if not (part / name).is_file()]:
            raise RunError(f"The backup is damaged: it lacks '{missing[0]}'.")
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    except BaseException as error:
        shutil.rmtree(part)
        if isinstance(error, DAMAGE):
            raise RunError(f"The backup is damaged: {error}.") from error
        raise
    flush(folder.parent)
    return contents
