"""A key store and its runs in one file, taken while the server runs, and put back elsewhere.

    backup.tar   store/…, runs/NAME/…, backup.json (written last: what is in it, with checksums)

Files of a run are replaced whole or only added to, so each can be copied at any moment, and a line
that is just being written is left for the next backup. Checkpoints are copied first, the newest of
them before the others: one that is removed meanwhile is damaged in the backup, and a run goes on
from one that is not. deployment.json is copied last: it counts noisy models and secure sums, and
must not be older than the checkpoint that it is restored with. Private keys are left out unless
they are asked for.
"""

import io
import json
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

from fedwatt import __version__
from fedwatt.deploy.plan.certificates import KEY
from fedwatt.errors import RunError
from fedwatt.files import flush, parse_json, write_atomically, writing

CONTENTS: Final = "backup.json"
CHECKPOINT: Final = "round-"
LAST: Final = "deployment.json"
FLOWERS: Final = "flower"
"""Flower's own folder in a store, which a server makes anew."""


@dataclass(frozen=True)
class Contents:
    """The content of a backup."""

    version: str
    """Of fedwatt."""
    at: str
    runs: tuple[str, ...]
    sha256: dict[str, str]
    """Of each file, by its path in the backup."""
    left_out: tuple[str, ...] = ()
    """Private keys that are not in it."""


def is_secret(path: PurePosixPath | Path) -> bool:
    """Tell whether a file of a key store is a private key."""
    return path.name == KEY


def back_up(target: Path, store: Path | None, runs: Sequence[Path], *, keys: bool) -> Contents:
    """Write a store and runs into the file `target`, which only its owner can read."""
    names = _refuse_unfit(store, runs)
    digests: dict[str, str] = {}
    left_out: list[str] = []

    def write(part: Path) -> None:
        part.touch(mode=0o600)
        with tarfile.open(part, "w") as archive:
            files = list(_files(store, runs))
            for name, path in files:
                if is_secret(path) and not keys:
                    left_out.append(name)
                elif (found := _read(path)) is not None:
                    content, mode = found
                    digests[name] = sha256(content).hexdigest()
                    _add(archive, name, content, mode)
            _refuse_torn((name for name, _ in files), digests)
            at = datetime.now(UTC).isoformat(timespec="seconds")
            about = Contents(__version__, at, tuple(names), digests, tuple(left_out))
            text = json.dumps(asdict(about), indent=1, ensure_ascii=False)
            _add(archive, CONTENTS, text.encode(), 0o600)

    write_atomically(target, write)
    return read_contents(target)


def _refuse_unfit(store: Path | None, runs: Sequence[Path]) -> list[str]:
    """Names of the runs in a backup; RunError if a folder is not there or a name is there twice."""
    for folder in (*([store] if store else []), *runs):
        if not folder.is_dir():
            raise RunError(f"There is no folder {folder} to back up.")
    names = [run.resolve().name for run in runs]
    if len(set(names)) < len(names):
        raise RunError(f"Two of these runs are called '{max(names, key=names.count)}'. Rename one.")
    return names


def _files(store: Path | None, runs: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Files with their names in the backup, in the order in which they are to be copied."""
    for path in [] if store is None else _inside(store):
        inside = path.relative_to(store or path)
        if inside.parts[0] != FLOWERS:
            yield f"store/{inside.as_posix()}", path
    for run in runs:
        for path in sorted(_inside(run), key=_turn, reverse=True):
            yield f"runs/{run.resolve().name}/{path.relative_to(run).as_posix()}", path


def _turn(path: Path) -> tuple[bool, bool, str]:
    """Newest checkpoints first, which stay longest, and deployment.json last."""
    return path.parent.name.startswith(CHECKPOINT), path.name != LAST, str(path)


def _inside(folder: Path) -> list[Path]:
    """Files of a folder that are neither locks nor being written just now."""
    found = []
    for path in sorted(folder.rglob("*")):
        passing = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not passing:
            found.append(path)
    return found


def _read(path: Path) -> tuple[bytes, int] | None:
    """Content and permissions of a file; None: it was removed meanwhile, as old checkpoints are."""
    try:
        content = path.read_bytes()
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        return None
    return content[: content.rfind(b"\n") + 1] if path.suffix == ".jsonl" else content, mode


def _refuse_torn(offered: Iterable[str], taken: Iterable[str]) -> None:
    """RunError unless of each method's checkpoints one was copied whole."""
    wanted = _by_checkpoint(offered)
    found = _by_checkpoint(taken)
    whole = {folder.parent for folder, files in wanted.items() if found[folder] == files}
    if torn := {folder.parent for folder in wanted} - whole:
        raise RunError(f"No checkpoint of {min(torn)} stayed long enough to be copied. Try again.")


def _by_checkpoint(names: Iterable[str]) -> Counter[PurePosixPath]:
    folders = (PurePosixPath(name).parent for name in names)
    return Counter(folder for folder in folders if folder.name.startswith(CHECKPOINT))


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    entry.mtime = int(datetime.now(UTC).timestamp())
    archive.addfile(entry, io.BytesIO(content))


def read_contents(backup: Path) -> Contents:
    """Return the declared content of a backup; raise RunError if it is none."""
    try:
        with tarfile.open(backup, "r:") as archive:
            file = archive.extractfile(CONTENTS)
            assert file is not None
            table = parse_json(file.read())
        return Contents(**table | {n: tuple(table[n]) for n in ("runs", "left_out")})
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError, AssertionError) as error:
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
        part.mkdir(parents=True, exist_ok=False)
        part.chmod(0o700)
    try:
        with tarfile.open(backup, "r:") as archive:
            for entry in archive:
                if entry.name != CONTENTS:
                    _put(archive, entry, part, contents)
        missing = [name for name in contents.sha256 if not (part / name).is_file()]
        if missing:
            raise RunError(f"The backup is damaged: it lacks '{missing[0]}'.")
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part)
        raise
    flush(folder.parent)
    return contents


def _put(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path, contents: Contents
) -> None:
    """One file, with its permissions; RunError if it is not as it was backed up."""
    name = PurePosixPath(entry.name)
    file = archive.extractfile(entry) if entry.isfile() else None
    content = b"" if file is None else file.read()
    if ".." in name.parts or name.is_absolute() or file is None:
        raise RunError(f"The backup has an entry '{entry.name}' that no backup writes.")
    if contents.sha256.get(entry.name) != sha256(content).hexdigest():
        raise RunError(f"The backup is damaged: '{entry.name}' does not match its checksum.")
    path = folder / name
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=entry.mode & 0o700)
        path.write_bytes(content)
        path.chmod(entry.mode & 0o777)
        flush(path)
