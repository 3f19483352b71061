"""Invented drives, to be written as any logger would: speed, pack, place and weather."""

from datetime import date, time, timedelta
from pathlib import Path
from xml.sax.saxutils import escape
from zipfile import ZipFile

import numpy as np
import polars as pl

START = 1_710_000_000  # 9 March 2024, 16:00 UTC


def drive(
    seconds: int = 900, step: float = 1.0, begin: float = START, place: float = 0.0
) -> pl.DataFrame:
    """One drive north: a sine of speed, 10 m/s on average, and what it takes from a 360 V pack.

    Power is 5 kW and 1.5 kW for each m/s² and m/s, so that braking charges.
    """
    t = np.arange(0.0, seconds, step)
    speed = 10 - 8 * np.cos(2 * np.pi * t / 90)
    change = 8 * 2 * np.pi / 90 * np.sin(2 * np.pi * t / 90)
    power = 5_000 + 1_500 * speed * change
    metres = 10 * t - 8 * 90 / (2 * np.pi) * np.sin(2 * np.pi * t / 90)
    used = np.cumsum(power) * step / 3600
    return pl.DataFrame(
        {
            "t": begin + t,
            "speed": speed,
            "volt": 360.0 - 0.005 * used,
            "amp": power / 360.0,
            "soc": 0.8 - used / 40_000,
            "lat": 48.0 + place + metres / 111_195,
            "lon": 11.0 + place + 0 * t,
            "alt": 500.0 + np.round(np.sin(t / 60), 2),
            "temp": 5.0 + 10 * place + 0 * t,
            "odo": 12_000 + metres / 1000,
        }
    )


def drives(trips: int = 4, *, pause: float = 3600.0, **how: float) -> pl.DataFrame:
    """Several drives of one vehicle, an hour apart."""
    seconds = int(how.get("seconds", 900))
    begin = float(how.pop("begin", START))
    parts = [
        drive(begin=begin + trip * (seconds + pause), **how)  # type: ignore[arg-type]
        for trip in range(trips)
    ]
    return pl.concat(parts)


def fleet(vehicles: int = 5, **how: float) -> pl.DataFrame:
    """Drives of several vehicles, one below the other, with a column of their names."""
    return pl.concat(
        drives(place=0.1 * n, **how).with_columns(van=pl.lit(f"M-AB {100 + n}"))
        for n in range(vehicles)
    )


def comma(frame: pl.DataFrame) -> pl.DataFrame:
    """Every number as text with a decimal comma."""
    numbers = [name for name, kind in frame.schema.items() if kind.is_float()]
    return frame.with_columns(
        pl.col(numbers).round(4).cast(pl.String).str.replace(".", ",", literal=True)
    )


def degree_minutes(column: str) -> pl.Expr:
    """Positions as Leaf Spy writes them: "48 3.12345", "-11 30.00000"."""
    size = pl.col(column).abs()
    minutes = ((size - size.floor()) * 60).round(5).cast(pl.String)
    sign = pl.when(pl.col(column) < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return pl.concat_str([sign, size.floor().cast(pl.Int64).cast(pl.String), pl.lit(" "), minutes])


def write_workbook(path: Path, frame: pl.DataFrame) -> None:
    """Write a frame as the only sheet of a workbook."""
    write_sheets(path, {"log": [tuple(frame.columns), *frame.rows()]})


def write_sheets(path: Path, sheets: dict[str, list[tuple[object, ...]]]) -> None:
    """Write the smallest .xlsx file that spreadsheets open.

    Its cells are numbers, texts, dates, times of day, elapsed times, or None for nothing.
    """
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats"

    def cell(value: object) -> str:
        if value is None:
            return "<c/>"
        if isinstance(value, date):
            return f'<c s="1"><v>{(value - date(1899, 12, 30)).days}</v></c>'
        if isinstance(value, timedelta):
            return f'<c s="3"><v>{value.total_seconds() / 86_400}</v></c>'
        if isinstance(value, time):
            seconds = 3600 * value.hour + 60 * value.minute + value.second
            return f'<c s="2"><v>{seconds / 86_400}</v></c>'
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return f"<c><v>{value}</v></c>"

    types = []
    entries = []
    links = []
    parts = {}
    for number, (name, rows) in enumerate(sheets.items(), start=1):
        types.append(
            f'<Override PartName="/xl/sheet{number}.xml" '
            f'ContentType="{kind}-officedocument.spreadsheetml.worksheet+xml"/>'
        )
        entries.append(f'<sheet name="{name}" sheetId="{number}" r:id="r{number}"/>')
        links.append(
            f'<Relationship Id="r{number}" Type="{relation}/worksheet" Target="sheet{number}.xml"/>'
        )
        lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
        parts[f"xl/sheet{number}.xml"] = (
            f'<worksheet xmlns="{main}"><sheetData>{lines}</sheetData></worksheet>'
        )
    parts |= {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
        f'ContentType="{kind}-package.relationships+xml"/><Override PartName="/xl/workbook.xml" '
        f'ContentType="{kind}-officedocument.spreadsheetml.sheet.main+xml"/>{"".join(types)}'
        f'<Override PartName="/xl/styles.xml" ContentType="{kind}-officedocument.spreadsheetml.'
        'styles+xml"/></Types>',
        "xl/styles.xml": f'<styleSheet xmlns="{main}"><cellXfs><xf/><xf numFmtId="14"/>'
        '<xf numFmtId="21"/><xf numFmtId="46"/></cellXfs></styleSheet>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{relation}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{relation}"><sheets>'
        f"{''.join(entries)}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'{"".join(links)}<Relationship Id="styles" Type="{relation}/styles" '
        'Target="styles.xml"/></Relationships>',
    }
    with ZipFile(path, "w") as file:
        for name, text in parts.items():
            file.writestr(name, text)
