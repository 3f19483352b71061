"""Dates and times as text → seconds since 1970 (UTC where a zone is written, else local).

Without a `format` these are tried: 2024-05-31 13:05:10.5, with or without seconds, a T in between
and a zone at the end; 31.05.2024 13:05:10. A time of day alone needs its format. A zone counts, so
that a trip over the end of summer time does not jump back an hour.
"""

from collections.abc import Sequence

import polars as pl

FORMATS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M:%S%.f")
# Zones follow a time of day: the end of 29-03-2021 is no zone.
_ZONE = r"^(.*\d[:.]\d\d(?:[:.]\d+)*(?: [AaPp][Mm])?) ?(?:Z|UTC|GMT|([+-])(\d\d):?(\d\d)?)$"


def seconds(text: pl.Expr, form: str = "") -> pl.Expr:
    """Seconds of dates and times as text; null where they cannot be read."""
    if "%z" in form or "%Z" in form:
        return parsed(text, form)
    local, offset_s = without_zone(text)
    return (
        pl.coalesce(*(parsed(local, date_format) for date_format in ((form,) if form else FORMATS)))
        - offset_s
    )


def without_zone(text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Date and time with a space in between and a decimal point, and the seconds of their zone."""
    tidy = text.str.strip_chars().str.replace(r"^(\S*\d)T(\d)", "${1} ${2}")
    tidy = tidy.str.replace(r"(:\d\d),(\d)", "${1}.${2}")
    local, sign, hours, minutes = (tidy.str.extract(_ZONE, group) for group in (1, 2, 3, 4))
    ahead = pl.when(sign == "-").then(-1.0).otherwise(1.0)
    h, m = (part.cast(pl.Float64, strict=False).fill_null(0.0) for part in (hours, minutes))
    return pl.coalesce(local, tidy), ahead * (3600.0 * h + 60.0 * m)


def parsed(text: pl.Expr, form: str) -> pl.Expr:
    """Seconds of texts in one format, as they stand."""
    if not any(code in form for code in ("%d", "%j")):
        since = text.str.to_time(form, strict=False)
        return since.cast(pl.Int64).cast(pl.Float64) * 1e-9
    parsed_time = text.str.to_datetime(form, strict=False, time_unit="us", ambiguous="earliest")
    return parsed_time.dt.epoch("us").cast(pl.Float64) * 1e-6


def joined(columns: Sequence[str]) -> pl.Expr:
    """Date and time of day as one text, where they are in several columns."""
    return pl.concat_str([pl.col(column).str.strip_chars() for column in columns], separator=" ")
