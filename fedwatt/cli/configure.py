"""The configuration that a command's file, options and assignments make together."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from fedwatt.errors import SettingError
from fedwatt.runs.config import RunConfig, from_tables, override, read_config


def folder_for(out: Path | None, resume: bool) -> Path:
    """The folder asked for, or a new one below runs/ named after the time."""
    if out is not None:
        return out
    if resume:
        raise SettingError("--resume needs --out: say which folder to continue.")
    return Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")


def stored_or(config: Path | None, out: Path, resume: bool) -> Path | None:
    """The file to read: the one given, or what an interrupted command left in `out`."""
    stored = out / "config.toml"
    return stored if config is None and resume and stored.exists() else config


def configuration(
    path: Path | None,
    *,
    methods: Sequence[str] | None,
    options: Mapping[tuple[str, str], object],
    seeds: str | None,
    device: str | None,
    assignments: Sequence[str] | None,
) -> RunConfig:
    """The file's settings, replaced by options that were given ((section, setting) → value)."""
    tables = read_config(path) if path is not None else {}
    for (section, setting), value in options.items():
        if value is not None:
            tables.setdefault(section, {})[setting] = value
    if methods:
        tables["method"] = _methods(tables.get("method", []), methods)
    if device is not None:
        tables["device"] = device
    if seeds is not None:
        tables["seeds"] = _seeds(seeds)
    return from_tables(override(tables, assignments or []))


def _methods(configured: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Tables of the methods called `names`; those of the configuration keep their settings."""
    known = {table.get("label", table.get("name")): table for table in configured}
    return [known.get(name, {"name": name}) for name in names]


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"'{text}' is not a list of whole numbers such as 1,2,3."
        ) from None
