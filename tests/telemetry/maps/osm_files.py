"""OpenStreetMap extracts drawn by hand, in metres from a corner."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

METRES_PER_DEGREE = 111_195.0
Tags = Mapping[str, str]
Node = tuple[int, float, float, Tags]  # id, metres east, metres north, tags
Way = tuple[int, Sequence[int], Tags]


def place(
    east_m: float, north_m: float, corner: tuple[float, float] = (60.0, 10.0)
) -> tuple[float, float]:
    """Latitude and longitude."""
    latitude, longitude = corner
    per_degree = METRES_PER_DEGREE * math.cos(math.radians(latitude))
    return latitude + north_m / METRES_PER_DEGREE, longitude + east_m / per_degree


def osm_xml(
    nodes: Sequence[Node], ways: Sequence[Way], corner: tuple[float, float] = (60.0, 10.0)
) -> str:
    """The extract as XML, nodes before ways."""
    lines = ["<?xml version='1.0' encoding='UTF-8'?>", "<osm version='0.6'>"]
    for number, east_m, north_m, tags in nodes:
        latitude, longitude = place(east_m, north_m, corner)
        lines.append(f"<node id='{number}' version='1' lat='{latitude:.7f}' lon='{longitude:.7f}'>")
        lines += [*_tags(tags), "</node>"]
    for number, members, tags in ways:
        lines.append(f"<way id='{number}' version='1'>")
        lines += [*(f"<nd ref='{member}'/>" for member in members), *_tags(tags), "</way>"]
    return "\n".join([*lines, "</osm>"])


def write_osm(path: Path, *content) -> Path:
    path.write_text(osm_xml(*content), encoding="utf-8")
    return path


def _tags(tags: Tags) -> list[str]:
    return [f"<tag k='{key}' v='{value}'/>" for key, value in tags.items()]
