"""The OpenAPI document of the service, and the check of requests against it.

Requests are checked against the very schemas that the document publishes, so the two cannot differ.
Understood are the keywords that the document uses: `$ref`, `type`, `enum`, `oneOf`, `properties`,
`required`, `additionalProperties`, `items`, `minItems`, `maxItems`, `minLength`, `maxLength`,
`minimum` and `maximum`.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from fedwatt import __version__
from fedwatt.telemetry.channels import CHANNELS, STORED

LONGEST_TRIP_S = 30_000
"""Seconds of a trip in one request: eight hours."""
LARGEST_NUMBER = 1e300
Schema = Mapping[str, Any]
KINDS: Mapping[str, type] = {
    "object": dict,
    "array": list,
    "string": str,
    "null": type(None),
}


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document, with this library's version and channels."""
    text = files("fedwatt.edge").joinpath("templates/openapi.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    content["info"]["version"] = __version__
    trip = content["components"]["schemas"]["TripRequest"]["properties"]["channels"]
    trip["properties"] = {name: _channel(name) for name in STORED}
    return content


def _channel(name: str) -> dict[str, Any]:
    """Return the schema of a channel: its values by second, within the limits of cleaning."""
    channel = CHANNELS[name]
    limits = {"minimum": channel.low, "maximum": channel.high}
    finite = {bound: value for bound, value in limits.items() if abs(value) < float("inf")}
    items = {"type": ["number", "null"], **finite}
    return {
        "type": "array",
        "description": channel.unit,
        "minItems": 1,
        "maxItems": LONGEST_TRIP_S,
        "items": items,
    }


def first_problem(value: Any, name: str) -> str | None:
    """Return what is wrong with a value for the schema of this name; None if nothing is."""
    return next(_problems(value, {"$ref": f"#/components/schemas/{name}"}, "the body"), None)


def _problems(value: Any, schema: Schema, where: str) -> Iterator[str]:
    """Yield what is wrong with a value."""
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"{where} is no {' or '.join(kinds)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is none of {', '.join(schema['enum'])}"
    if "oneOf" in schema:
        fits = [not any(_problems(value, option, where)) for option in schema["oneOf"]]
        if sum(fits) != 1:
            options = " or ".join(name for o in schema["oneOf"] for name in o.get("required", ()))
            yield f"{where} needs exactly one of {options}"
    if isinstance(value, dict):
        yield from _object_problems(value, schema, where)
    elif isinstance(value, list):
        yield from _size_problems(len(value), schema, "Items", f"{where} has", "entries")
        for place, entry in enumerate(value if "items" in schema else ()):
            yield from _problems(entry, schema["items"], f"{where}[{place}]")
    elif isinstance(value, str):
        yield from _size_problems(len(value), schema, "Length", f"{where} has", "characters")
    elif isinstance(value, int | float):
        yield from _size_problems(value, schema, "imum", f"{where} is", "")


def _object_problems(value: Mapping[str, Any], schema: Schema, where: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where} has no '{name}'"
    for name, entry in value.items():
        if name in properties:
            yield from _problems(entry, properties[name], name)
        elif schema.get("additionalProperties") is False:
            yield f"{where} has an unknown '{name[:50]}'; known are {', '.join(properties)}"


def _size_problems(
    size: float, schema: Schema, keyword: str, where: str, unit: str
) -> Iterator[str]:
    """Yield a problem if a size is beyond the bounds `min` and `max` of a keyword."""
    least = schema.get(f"min{keyword}", -float("inf"))
    most = schema.get(f"max{keyword}", float("inf"))
    if size < least:
        yield f"{where} {size:g} {unit}".rstrip() + f": at least {least:g} allowed"
    if size > most:
        yield f"{where} {size:g} {unit}".rstrip() + f": at most {most:g} allowed"


def _is(value: Any, kind: str) -> bool:
    """Return whether a value is of a JSON type; true, false, NaN and infinity are no numbers."""
    if isinstance(value, bool):
        return False
    if kind == "number":
        return isinstance(value, int | float) and -LARGEST_NUMBER < value < LARGEST_NUMBER
    return isinstance(value, KINDS[kind])
