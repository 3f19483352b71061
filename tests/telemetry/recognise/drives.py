"""Invented drives, to be written as any logger would: speed, pack, place and weather."""

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
            "alt": 500.0 + 0 * t,
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
