"""Quantity and unit that a column's header names."""

import re
import tomllib
import unicodedata
from collections.abc import Container
from functools import cache
from importlib import resources
from typing import Any

HERE = resources.files("fedwatt.telemetry.recognise")
# Square, round, and the round ones of Chinese texts.
BRACKETS = re.compile(r"[\[(\uff08]\s*([^\])\uff09]*?)\s*[\])\uff09]")
FIRST_IDEOGRAPH = 0x2E80
COMPOUND = 8
"""Names of one word and this length are found inside longer words: compounds are one word."""
GPS_FACTOR = 0.8
"""A receiver's speed or height counts less than the vehicle's own."""


@cache
def shipped(name: str) -> dict[str, Any]:
    """Return the tables of `name`.toml, which lies beside this file."""
    return tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def unit_of_word() -> dict[str, str]:
    """Return units of a mapping by their spellings in lower case."""
    units = shipped("unit_words")["units"].items()
    return {word: unit for unit, words in units for word in words}


def plain(name: str) -> str:
    """Return a header in lower case, without accents, words apart.

    >>> plain("HV Battery Voltage[V]"), plain("batteryCurrent_A"), plain("outsideTempF")
    ('hv battery voltage v', 'battery current a', 'outside temp f')
    >>> plain("Außentemperatur (°C)"), plain("SoC [%]"), plain("车速(km/h)")
    ('aussentemperatur °c', 'soc %', '车速 km h')
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])|(?<=[a-z]{3})(?=[A-Z]$)", " ", name)
    bare = "".join(
        letter
        for letter in unicodedata.normalize("NFKD", spaced.casefold())
        if not unicodedata.combining(letter)
    )
    return " ".join(re.sub(r"[^\w%°]+|_", " ", bare).split())


def without_unit(name: str) -> str:
    """Return the header's words without a unit in brackets or at its end.

    >>> without_unit("Speed (OBD)(km/h)"), without_unit("speed_kmh"), without_unit("Pack Amps")
    ('speed obd', 'speed', 'pack amps')
    """
    unit_words = unit_of_word()
    bare = BRACKETS.sub(lambda match: "" if match[1].casefold() in unit_words else match[0], name)
    words = plain(bare).split()
    for length in (2, 1):
        tail = " ".join(words[-length:])
        # "volts" and "amps" name the quantity as well as its unit.
        if len(words) > length and tail in unit_words and not tail.endswith(("volts", "amps")):
            return " ".join(words[:-length])
    return " ".join(words)


def stated_unit(name: str, allowed: Container[str]) -> str:
    """Return unit of `allowed` that is written in brackets or at the end of the name, or "".

    >>> stated_unit("outside_temp_f", {"°C", "°F"}), stated_unit("soc", {"1", "%"})
    ('°F', '')
    """
    words = plain(name).split()
    inside = BRACKETS.findall(name)
    for candidate in (*reversed(inside), " ".join(words[-2:]), *words[-1:]):
        unit = candidate if candidate in allowed else unit_of_word().get(candidate.casefold(), "")
        if unit and unit in allowed:
            return unit
    return ""


def foreign_unit(name: str, allowed: Container[str]) -> bool:
    """Return whether a unit is stated that the quantity cannot have.

    Single letters count only in brackets.

    >>> foreign_unit("Outside Air [%]", {"°C"}), foreign_unit("power_used_wh", {"W", "kW"})
    (True, True)
    >>> foreign_unit("phase_a", {"V"}), foreign_unit("speed", {"km/h"})
    (False, False)
    """
    if stated_unit(name, allowed):
        return False
    words = plain(name).split()
    tails = [word for word in (" ".join(words[-2:]), *words[-1:]) if len(word) > 1]
    stated = [text.casefold() for text in BRACKETS.findall(name)] + tails
    return any(text in unit_of_word() and len(text.split()) <= 2 for text in stated)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    bare = name.removeprefix("=")
    text = plain(bare).replace(" ", " ?") if "\\" not in bare else bare
    if name.startswith("="):
        return re.compile(f"^{text}$")
    long = " " not in bare and len(bare) >= COMPOUND
    return re.compile(text if _is_chinese(bare) or long else rf"\b{text}\b")


@cache
def _foreign() -> re.Pattern[str]:
    words = shipped("header_names")["foreign"]
    return re.compile("|".join(text if _is_chinese(text) else rf"\b{text}\b" for text in words))


def _is_chinese(text: str) -> bool:
    """Return whether words of the text stand without spaces between them."""
    return any(ord(letter) >= FIRST_IDEOGRAPH for letter in text)


def fit(header: str, quantity: str) -> float:
    """Return the share of a header that a name of the quantity covers, 0 if none fits.

    >>> fit("Vehicle Speed[km/h]", "speed_mps"), fit("Wind Speed", "speed_mps")
    (1.0, 0.0)
    >>> fit("AirCon Power [kW]", "ac_w"), fit("Batteriestrom_A", "current_a")
    (1.0, 1.0)
    >>> fit("总电流", "current_a"), fit("Pack current sensor", "current_a")
    (1.0, 0.6470588235294118)
    """
    text = without_unit(header)
    best = 0.0
    letters = len(text.replace(" ", ""))
    for language in shipped("header_names").get(quantity, {}).values():
        for name in language:
            # "=battery v" is a whole header whose unit says what it is.
            match = _pattern(name).search(plain(header) if name[-2:] in (" v", " a") else text)
            if not match or not letters:
                continue
            remainder = text[: match.start()] + " " + text[match.end() :]
            if not _foreign().search(remainder):
                best = max(best, len(match[0].replace(" ", "")) / letters)
    return best * (GPS_FACTOR if "gps" in text.split() else 1.0)


def names_id(header: str, of: str) -> bool:
    """Return whether a header names the ids of vehicles or of trips (`of`).

    >>> names_id("VehId", "vehicle"), names_id("Kennzeichen", "vehicle"), names_id("car_id", "trip")
    (True, True, False)
    >>> names_id("Trip distance", "trip"), names_id("车辆编号", "vehicle")
    (False, True)
    """
    text = plain(header).replace(" ", "")
    names = shipped("header_names")
    id_words = {*names["id_words"]["all"], ""}
    of_it = [plain(name).replace(" ", "") for spellings in names[of].values() for name in spellings]
    return any(
        (text.startswith(name) and text.removeprefix(name) in id_words)
        or (text.endswith(name) and text.removesuffix(name) in id_words)
        for name in of_it
    )
