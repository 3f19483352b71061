"""A mapping as TOML text, with the reason of every decision behind it, to check and edit."""

import json
from functools import partial
from typing import Any

from fedwatt.telemetry.channels import CHANNELS, MAPPABLE
from fedwatt.telemetry.recognise.understand import Understanding

_quoted = partial(json.dumps, ensure_ascii=False)  # TOML's strings are JSON's


def mapping_text(understanding: Understanding) -> str:
    """Return the mapping of what was understood, as TOML; what is guessed says so."""
    tables = understanding.tables
    reasons = understanding.reasons
    seen = (
        "headers and rows" if understanding.sample.rows.height else "headers alone: it has no rows"
    )
    lines = [
        f"# Proposed for {understanding.sample.path.name} from its {seen}. Check every line.",
        "",
    ]
    if understanding.format:
        lines = [
            f"# {tables['name']}: the mapping '{understanding.format}' that fedwatt has for it.",
            "",
        ]
    lines += [f"name = {_quoted(tables.get('name', understanding.sample.path.stem))}"]
    lines += [f'kind = "{tables.get("kind", "passenger")}"       # passenger, truck or bus']
    lines += [f'labels = "{tables.get("labels", "measured")}"      # measured or simulated', ""]
    lines += _table("file", tables["file"])
    for key in ("time", "vehicle", "trip"):
        lines += _table(key, tables[key], reasons.get(key, ""))
    for name in MAPPABLE:
        if name in tables["channels"]:
            sign = reasons.get(f"{name}.discharge", "")
            why = reasons.get(name, "")
            lines += _table(f"channels.{name}", tables["channels"][name], why, discharge=sign)
    if "speed_mps" not in tables["channels"]:
        lines += ["# No column looks like speed. Every trip needs it:", "# [channels.speed_mps]"]
        lines += ['# column = "..."', '# unit = "km/h"', ""]
    lines += _table("cleaning", tables["cleaning"], reasons["cleaning"])
    lines += _table("facts", tables.get("facts", {}))
    if understanding.unused:
        lines += ["# Not used: " + ", ".join(understanding.unused)]
    lines += [f"# {question}" for question in understanding.questions]
    return "\n".join([*lines, "", *_free(tables["channels"])]).rstrip() + "\n"


def _table(name: str, values: dict[str, Any], why: str = "", **reasons: str) -> list[str]:
    """Lines of a table, none if it is empty.

    `why` stands behind its unit or, without one, behind its first line; `reasons` behind others.
    """
    if not values:
        return []
    decided = "unit" if "unit" in values else next(iter(values))
    reasons = {decided: why, **reasons}
    comments = {key: f"    # {reason}" for key, reason in reasons.items() if reason}
    lines = [f"{key} = {_quoted(value)}{comments.get(key, '')}" for key, value in values.items()]
    return [f"[{name}]", *lines, ""]


def _free(taken: dict[str, Any]) -> list[str]:
    """Return the channels that no column was given to, as comments: name, meaning, units."""
    free = [name for name in MAPPABLE if name not in taken]
    meanings = {
        name: f"{CHANNELS[name].meaning}; {', '.join(CHANNELS[name].units)}" for name in free
    }
    lines = [f"# [channels.{name}]    {text}" for name, text in meanings.items()]
    return ["# Channels still free, each with the units it may have:", *lines] if free else []
