"""Day first or month first: 03/04/2024 is 3 April or 4 March, and the data tell.

In order: a number above 12 tells; dates of one day do not need to tell, since only differences of
time matter; the reading in which time runs forward, and the one whose dates lie closer together, is
the right one. Otherwise the question is put to the user.
"""

import tomllib
from collections.abc import Sequence
from functools import cache

import numpy as np
import polars as pl

from fedwatt.data.readers.dates import seconds
from fedwatt.data.recognise.header_words import HERE
from fedwatt.errors import DataError

DAY_S = 86_400.0
CLOSER = 4.0
"""How many times shorter the recording must be in one reading to be believed."""


@cache
def _orders() -> dict[str, str]:
    tables = tomllib.loads((HERE / "date_formats.toml").read_text(encoding="utf-8"))
    return {one["date"]: one["order"] for one in tables["formats"] if "order" in one}


def order_of(form: str) -> str:
    """Which of two readings a format is: day first, month first, or "" for the only one.

    >>> order_of("%d/%m/%Y %H:%M:%S%.f"), order_of("%d.%m.%Y %H:%M")
    ('day first', '')
    """
    date = form.partition(" ")[0]
    return _orders().get(date, "")


def choose_order(texts: pl.Series, forms: Sequence[str], order: str, where: str) -> tuple[str, str]:
    """The format of `forms` to read these texts by, and why, to be put behind a comma."""
    wanted = [form for form in forms if order and order_of(form) == order]
    if wanted:
        return wanted[0], f", {order} as you say"
    first = forms[0]
    others = [form for form in forms if order_of(form) not in ("", order_of(first))]
    if not order_of(first) or not others:
        told = order_of(first) and f", {order_of(first)}: some number is above 12"
        return first, told or ""
    readings = {form: _read(texts, form) for form in (first, others[0])}
    if all(len(np.unique(days // DAY_S)) == 1 for days in readings.values()):
        return others[0], ", all of one day, so that the order of day and month does not matter"
    backward = {form: int((np.diff(at) < 0).sum()) for form, at in readings.items()}
    best, worst = sorted(readings, key=lambda form: backward[form])
    if backward[best] == 0 < backward[worst]:
        return best, f", {order_of(best)}: so read, time runs forward"
    span = {form: float(np.ptp(at)) for form, at in readings.items()}
    best, worst = sorted(readings, key=lambda form: span[form])
    if span[best] * CLOSER < span[worst]:
        return best, f", {order_of(best)}: so read, the dates lie close together"
    raise DataError(
        f"{where}: {texts[0]!r} may be day first or month first, and its dates do not tell which. "
        "Say it with --dates 'day first' or --dates 'month first'."
    )


def _read(texts: pl.Series, form: str) -> np.ndarray:
    return (
        pl.DataFrame({"t": texts}).select(seconds(pl.col("t"), form))["t"].drop_nulls().to_numpy()
    )
