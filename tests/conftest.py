"""Shared by all tests: files that nobody waits for, C that is compiled once, and their order."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import IO

import pytest

LONGEST = (
    "deploy/transport/test_processes.py",
    "cli/test_cli.py",
    "test_tutorials.py",
    "tuning/test_grid.py",
    "deploy/server/test_equivalence.py",
    "engine/test_cpu.py",
    "deploy/vehicle/test_worker.py",
    "deploy/transport/test_version.py",
    "deploy/server/test_secure.py",
    "deploy/server/test_rounds.py",
    "deploy/transport/test_round_trip.py",
    "edge/test_elevation.py",
    "cli/test_snippets.py",
    "runs/test_trackers.py",
    "cli/test_journeys.py",
    "deploy/transport/test_request_filter.py",
    "runs/test_folder.py",
    "deploy/vehicle/test_attacks.py",
    "deploy/server/test_maps.py",
)
"""Files that take ten seconds or more, the longest first."""
WRAPPER = Path(__file__).with_name("compile_once.py")
COMPILED = pytest.StashKey[tuple[Path, str | None]]()
"""Where libraries are kept, and what CC was before."""


def pytest_configure(config: pytest.Config) -> None:
    """Processes of a session that need the same C have it compiled by the first of them."""
    compiler = os.environ.get("CC", "cc")
    if hasattr(config, "workerinput") or shutil.which(compiler.split(" ")[0]) is None:
        return  # workers have inherited CC from the process that started them
    folder = Path(mkdtemp(prefix="fedwatt-compiled-"))
    wrapper = shlex.join([sys.executable, "-IS", str(WRAPPER), str(folder)])
    # One word, since Triton takes CC as the name of a file.
    command = folder / "cc"
    command.write_text(f'#!/bin/sh\nexec {wrapper} {compiler} "$@"\n', encoding="utf-8")
    command.chmod(0o700)
    config.stash[COMPILED] = folder, os.environ.get("CC")
    os.environ["CC"] = str(command)


def pytest_unconfigure(config: pytest.Config) -> None:
    if COMPILED not in config.stash:
        return
    folder, before = config.stash[COMPILED]
    if before is None:
        del os.environ["CC"]
    else:
        os.environ["CC"] = before
    shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give workers whole files in this order, so that none is left with a long one."""
    here = Path(__file__).parent
    missing = [file for file in LONGEST if not (here / file).is_file()]
    if missing:
        names = ", ".join(missing)
        raise pytest.UsageError(f"tests/conftest.py: LONGEST names missing files, {names}.")
    place = {here / file: number for number, file in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(scope="session", autouse=True)
def files_that_nobody_waits_for() -> Iterator[None]:
    """Some milliseconds a file, of which a run has hundreds; only a power cut would tell."""

    def only_open(file: int | IO[bytes]) -> None:
        os.fstat(file if isinstance(file, int) else file.fileno())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", only_open)
        yield
