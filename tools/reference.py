"""Write what pages say of the code: names, commands, columns of tables, channels.

python tools/reference.py

docs/python.md, docs/commands.md and docs/methods/ are made as a whole, of docstrings, help texts
and the catalogue of methods; of docs/configuration.md, docs/data.md and docs/methods.md the tables
between marks.
"""

import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from typer.main import get_command

from benchmarks.marked import filled
from fedwatt import tables
from fedwatt.cli import app
from fedwatt.telemetry.channels import CHANNELS, MAPPABLE
from tools import method_pages
from tools.markdown import from_docstring, table

DOCS = Path(__file__).parents[1] / "docs"
# Section → what it is for, and its names. "Class:*" stands for its public methods as well, and
# "Class:one,other" for these.
PYTHON = {
    "Train": (
        "A fleet, a model and the terms of training make a federation; training gives an object "
        "that predicts, reports, exports and can be saved.",
        "fedwatt.Run:on,train,execute fedwatt.Training fedwatt.Availability fedwatt.Trained:* "
        "fedwatt.load fedwatt.write_report",
    ),
    "Fleets": (
        "Where vehicles come from, and how windows are made of their trips.",
        "fedwatt.synthetic_fleet fedwatt.load_fleet fedwatt.fleet_from_frame fedwatt.DataSettings "
        "fedwatt.Fleet fedwatt.telemetry.Vehicle fedwatt.telemetry.Trip "
        "fedwatt.windows.targets.Target",
    ),
    "Methods": (
        "A method is a list of local rules and a server rule. [Extending](extending.md) shows how "
        "to write one; the hooks are these.",
        "fedwatt.methods.get fedwatt.Method fedwatt.methods.LocalRule:* fedwatt.methods.Start "
        "fedwatt.methods.StepLoss fedwatt.methods.ServerRule:* fedwatt.methods.Replies "
        "fedwatt.methods.mean_delta fedwatt.methods.moved fedwatt.methods.Range",
    ),
    "Models": ("What is trained.", "fedwatt.Model fedwatt.models.get_model"),
    "Observers": ("[Watch a run](watching.md) from Python.", "fedwatt.Observer:*"),
    "In the vehicle": (
        "[In the vehicle](edge.md): these need numpy and onnxruntime only.",
        "fedwatt.edge.energy_model.EnergyModel:* fedwatt.edge.predictor.EnergyPredictor:* "
        "fedwatt.edge.predictor.Prediction fedwatt.edge.card.ModelCard",
    ),
}
PYTHON_HEAD = """# Python

For everyone who calls fedwatt from Python. Here you can look up its public names. Shapes are in \
brackets: P vehicles, D weights, W windows. Everything raises `fedwatt.errors.FedwattError` for \
what the caller can put right.
"""
COMMANDS_HEAD = """# Commands

For everyone who types commands. Here you can look up an option, which means the same in every \
command: those of \
several commands are in the first table, and each command lists its other options. `--help` \
shows them with their defaults; [Configuration](configuration.md) has what `--set` takes. \
The maintainers' commands `compare`, `reproduce` and `bench` need a clone of the repository.
"""
MAINTENANCE = ("fedwatt compare", "fedwatt reproduce", "fedwatt bench")
_ARRAYS = {"float64": "Float", "floating": "Float", "int64": "Int", "bool": "Bool"}


def signature(name: str, thing: Any) -> str:
    """How it is called, one parameter a line where they do not fit into one."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    if inspect.isclass(thing):
        found = found.replace(return_annotation=inspect.Signature.empty)
    parts = []
    kinds = [parameter.kind for parameter in found.parameters.values()]
    for number, parameter in enumerate(found.parameters.values()):
        if parameter.name == "self":
            continue
        barred = {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}.intersection(kinds[:number])
        if parameter.kind is parameter.KEYWORD_ONLY and not barred:
            parts.append("*")
        parts.append(_short(str(parameter)))
    # An annotation in quotes is one that is not imported when the module is.
    back = found.return_annotation
    arrow = "" if back is found.empty else f" -> {_short(inspect.formatannotation(back))}"
    line = f"{name}({', '.join(parts)}){arrow}"
    if len(line) <= 96:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){arrow}"


def _short(text: str) -> str:
    """Types without their modules and quotes, objects without their addresses."""
    text = re.sub(r"<factory>|<function [^>]*>|<[\w.]+ object at [^>]*>", "...", text)
    text = re.sub(r"\b[a-z_]\w*(?:\.[a-z_]\w*)*\.(?=[A-Z])", "", text)
    array = r"(?:numpy\.)?ndarray\[tuple\[.*?\], (?:numpy\.)?dtype\[(?:numpy\.)?(\w+)\]\]"
    text = re.sub(array, lambda found: f"{_ARRAYS[found[1]]}Array", text)
    return re.sub(r"'([A-Z][\w\[\], |.]*)'", r"\1", text)


def python_page() -> str:
    """Return the page of the Python names."""
    parts = [PYTHON_HEAD]
    for section, (purpose, names) in PYTHON.items():
        parts.append(f"## {section}\n\n{purpose}\n")
        for name in names.split():
            parts.extend(_entry(*name.partition(":")[::2]))
    return "\n".join(parts)


def _entry(path: str, members: str) -> Iterator[str]:
    thing = resolve_name(path)
    yield f"### {path}\n"
    yield f"```py\n{signature(path.rpartition('.')[2], thing)}\n```\n"
    yield from_docstring(thing.__doc__ or "") + "\n"
    for name, member in inspect.getmembers(thing, inspect.isfunction):
        shown = not name.startswith("_") and bool(member.__doc__)
        if name in members.split(",") or (members == "*" and shown):
            yield f"**`{path.rpartition('.')[2]}.{name}`**\n"
            yield f"```py\n{signature(name, member)}\n```\n"
            yield from_docstring(member.__doc__) + "\n"


def commands_page() -> str:
    """Return the page of the commands."""
    leaves = dict(_leaves(get_command(app), "fedwatt"))
    uses = Counter(p.opts[0] for node in leaves.values() for p in _options(node))
    common: dict[str, tuple[str, str]] = {}
    parts = []
    for path, node in leaves.items():
        arguments = [_typed(p) for p in node.params if p.param_type_name == "argument"]
        parts.append(f"## {path}\n\n`{' '.join([path, *arguments])}`: {node.help}\n")
        here = []
        for option in _options(node):
            if uses[option.opts[0]] > 1:
                text = re.sub(r" ?\[default: .*?\]", "", option.help)
                common.setdefault(option.opts[0], (f"`{_typed(option)}`", text))
                here.append(f"`{option.opts[0]}`")
        own = [(f"`{_typed(o)}`", o.help) for o in _options(node) if uses[o.opts[0]] == 1]
        if own:
            parts.append(table(("option", ""), own) + "\n")
        if here:
            parts.append(f"{'Also' if own else 'Options:'} {', '.join(here)}.\n")
    shared = table(("option", ""), sorted(common.values()))
    return "\n".join([COMMANDS_HEAD, f"## Options of several commands\n\n{shared}\n", *parts])


def _leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands that users call, with the words that are typed."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield path, command
    for name, child in inner.items():
        if f"{path} {name}" not in MAINTENANCE:
            yield from _leaves(child, f"{path} {name}")


def _options(command: Any) -> list[Any]:
    return [p for p in command.params if p.param_type_name == "option" and not p.hidden]


def _typed(parameter: Any) -> str:
    """Return the words that are typed for an argument or an option."""
    if parameter.param_type_name == "argument":
        return parameter.metavar or parameter.name.upper()
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return names
    return f"{names} {parameter.metavar or parameter.type.name.upper().removesuffix(' RANGE')}"


def configuration_page() -> str:
    """Return the page of the configuration, with the columns of every table."""
    return _with_block("configuration.md", "columns", tables.markdown())


def data_page() -> str:
    """Return the page of the data, with the channels that a mapping may have."""
    rows = [
        (f"`{name}`", own.meaning, ", ".join(own.units))
        for name, own in ((name, CHANNELS[name]) for name in MAPPABLE)
    ]
    head = ("id", "meaning", "units that a mapping may name")
    return _with_block("data.md", "channels", table(head, rows))


def methods_page() -> str:
    """Return the page of the methods, with the pages of their families."""
    return _with_block("methods.md", "families", method_pages.families_table())


def _with_block(page: str, name: str, block: str) -> str:
    return filled((DOCS / page).read_text(encoding="utf-8"), {name: block})


PAGES = {
    "python.md": python_page,
    "commands.md": commands_page,
    "configuration.md": configuration_page,
    "data.md": data_page,
    "methods.md": methods_page,
    **{
        f"methods/{family}.md": partial(method_pages.page, family)
        for family in method_pages.FAMILIES
    },
}


def main() -> int:
    """Write the pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
