"""A mapping as TOML text, with the reason of every decision behind it, to check and edit."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedwatt.data.channels import CHANNELS, MAPPABLE
from fedwatt.data.recognise.understand import Answers, Understanding, understand

_quoted = partial(json.dumps, ensure_ascii=False)  # TOML's strings are JSON's


def propose_mapping(
    paths: Sequence[str | Path] | str | Path, answers: Answers | None = None
) -> str:
    """TOML text of a mapping for these files; what is guessed says so."""
    return mapping_text(understand(paths, answers))


def mapping_text(found: Understanding) -> str:
    """The mapping of what was understood, as TOML."""
    tables, reasons = found.tables, found.reasons
    seen = "headers and rows" if found.sample.rows.height else "headers alone: it has no rows"
    lines = [f"# Proposed for {found.sample.path.name} from its {seen}. Check every line.", ""]
    if found.format:
        lines = [f"# {tables['name']}: the mapping '{found.format}' that fedwatt has for it.", ""]
    lines += [f"name = {_quoted(tables.get('name', found.sample.path.stem))}"]
    lines += [f'kind = "{tables.get("kind", "passenger")}"       # passenger, truck or bus']
    lines += [f'labels = "{tables.get("labels", "measured")}"      # measured or simulated', ""]
    if tables["file"]:
        lines += ["[file]", *(_line(key, value) for key, value in tables["file"].items()), ""]
    for key in ("time", "vehicle", "trip"):
        lines += [f"[{key}]", *_with_reason(tables[key], reasons.get(key, "")), ""]
    for name in MAPPABLE:
        if name in tables["channels"]:
            lines += _channel(name, tables["channels"][name], found)
    if "speed_mps" not in tables["channels"]:
        lines += ["# No column looks like speed. Every trip needs it:", "# [channels.speed_mps]"]
        lines += ['# column = "..."', '# unit = "km/h"', ""]
    lines += ["[cleaning]", *_with_reason(tables["cleaning"], reasons["cleaning"]), ""]
    if tables.get("facts"):
        lines += ["[facts]", *(_line(key, value) for key, value in tables["facts"].items()), ""]
    if found.unused:
        lines += ["# Not used: " + ", ".join(found.unused)]
    lines += [f"# {question}" for question in found.questions]
    return "\n".join([*lines, "", *_free(tables["channels"])]).rstrip() + "\n"


def _line(key: str, value: Any) -> str:
    return f"{key} = {_quoted(value)}"


def _with_reason(values: dict[str, Any], reason: str) -> list[str]:
    """Lines of a table; the reason stands behind the last of them that was decided."""
    lines = [_line(key, value) for key, value in values.items()]
    at = list(values).index("unit") if "unit" in values else 0
    lines[at] += f"    # {reason}" if reason else ""
    return lines


def _channel(name: str, values: dict[str, Any], found: Understanding) -> list[str]:
    lines = [f"[channels.{name}]"]
    for key, value in values.items():
        reason = {"unit": found.reasons.get(name, "")}.get(key) or found.reasons.get(
            f"{name}.{key}", ""
        )
        lines.append(_line(key, value) + (f"    # {reason}" if reason else ""))
    return [*lines, ""]


def _free(taken: dict[str, Any]) -> list[str]:
    """The channels that no column was given to, as comments: name, meaning, units."""
    free = [name for name in MAPPABLE if name not in taken]
    if not free:
        return []
    lines = ["# Channels still free, each with the units it may have:"]
    for name, channel in ((name, CHANNELS[name]) for name in free):
        lines.append(f"# [channels.{name}]    {channel.meaning}; {', '.join(channel.units)}")
    return lines
