"""Recognition of the time column, and of its texts and numbers."""

from pathlib import Path

import polars as pl
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry.recognise.identity import find_clock
from fedwatt.telemetry.recognise.table_sample import TableSample, read_sample

NOON = 1_709_985_600.0  # 9 March 2024, 12:00 UTC


def sample(path: Path, **columns: list[object]) -> TableSample:
    pl.DataFrame(columns, strict=False).write_csv(path / "log.csv", separator=";")
    return read_sample(path / "log.csv")


@pytest.mark.parametrize(
    ("column", "first", "second", "unit"),
    [
        ("time", "2024-03-09 12:00:00", "2024-03-09 12:00:15", "iso"),
        ("timestamp", "2024-03-09T12:00:00Z", "2024-03-09T12:00:15Z", "iso"),
        ("timestamp", "2024-03-09T13:00:00.000+01:00", "2024-03-09T13:00:15.000+0100", "iso"),
        ("Zeitstempel", "09.03.2024 12:00:00", "09.03.2024 12:00:15", "iso"),
        ("horodatage", "2024/03/09 12:00:00,0", "2024/03/09 12:00:15,0", "iso"),
        ("Local Time", "03/19/2024 12:00:00 PM", "03/19/2024 12:00:15 PM", "iso"),
        ("Device Time", "09-Mar-2024 12:00:00.000", "09-Mar-2024 12:00:15.000", "iso"),
        ("Fecha", "19/03/2024 12:00:00 p. m.", "19/03/2024 12:00:15 p.\u00a0m.", "iso"),
        ("time", "2024-03-09 12:00:00:000", "2024-03-09 12:00:15:000", "iso"),
        ("time", "20240309T120000Z", "20240309T120015Z", "iso"),
        ("数据时间", "20240309120000", "20240309120015", "iso"),
        ("utc", 1709985600, 1709985615, "s"),
        ("Timestamp", 1709985600000, 1709985615000, "ms"),
        ("epoch", 1709985600000000, 1709985615000000, "us"),
        ("Time (min)", 0.0, 0.25, "min"),
        ("t", 0.0, 15.0, "s"),
        ("second", 0.0, 15.0, "s"),
        ("Timestamp(ms)", 0, 15000, "ms"),
        ("date", 45360.5, 45360.5 + 15 / 86400, "d"),
    ],
)
def test_a_time_is_read(tmp_path, column, first, second, unit) -> None:
    log = sample(tmp_path, **{column: [first, second], "speed": [1.0, 2.0]})
    clock = find_clock([log])
    assert clock.columns == (column,)
    assert clock.unit == unit
    at = clock.seconds(log)
    assert at[1] - at[0] == pytest.approx(15.0, abs=1e-4)
    if clock.absolute and "19" not in str(first):
        assert at[0] == NOON


def test_a_zone_is_honoured_over_the_end_of_summer_time(tmp_path) -> None:
    texts = ["2024-10-27T02:59:55+02:00", "2024-10-27T02:00:05+01:00"]
    log = sample(tmp_path, time=texts, speed=[1.0, 2.0])
    at = find_clock([log]).seconds(log)
    assert at[1] - at[0] == 10.0


def test_a_date_and_a_time_of_day_belong_together(tmp_path) -> None:
    log = sample(
        tmp_path, Datum=["09.03.2024", "10.03.2024"], Uhrzeit=["23:59:55", "00:00:05"], v=[1.0, 2.0]
    )
    clock = find_clock([log])
    assert clock.columns == ("Datum", "Uhrzeit")
    at = clock.seconds(log)
    assert at[1] - at[0] == 10.0


@pytest.mark.parametrize(
    ("texts", "order", "why"),
    [
        (["03/04/2024 10:00:00", "03/13/2024 10:00:00"], "%m/%d", "some number is above 12"),
        (["03/04/2024 10:00:00", "13/04/2024 10:00:00"], "%d/%m", "some number is above 12"),
        # Over midnight: a month later if read the other way round, but still forward.
        (["03/04/2024 23:59:00", "03/05/2024 00:01:00"], "%m/%d", "the dates lie close together"),
        (["31/01/24 10:00", "01/02/24 10:00"], "%d/%m", "some number is above 12"),
        (["30-04-2024 10:00:00", "01-05-2024 10:00:00"], "%d-%m", "some number is above 12"),
        (["03/04/2024 10:00:00", "03/04/2024 10:00:09"], "", "all of one day"),
    ],
)
def test_the_dates_tell_whether_days_or_months_come_first(tmp_path, texts, order, why) -> None:
    log = sample(tmp_path, time=texts, speed=[1.0, 2.0])
    clock = find_clock([log])
    assert clock.form.startswith(order)
    assert why in clock.why


def test_what_the_dates_do_not_tell_the_user_does(tmp_path) -> None:
    texts = ["03/04/2024 10:00:00", "05/02/2024 10:00:00", "02/03/2024 10:00:00"]
    log = sample(tmp_path, time=texts, speed=[1.0, 2.0, 3.0])
    with pytest.raises(DataError, match="may be day first or month first"):
        find_clock([log])
    assert find_clock([log], "month first").form.startswith("%m/%d")
    assert find_clock([log], "day first").form.startswith("%d/%m")
