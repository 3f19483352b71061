"""Samples of files: all rows of a small one, each once."""

from pathlib import Path

import pytest

from fedwatt.telemetry.recognise.table_sample import HEAD_BYTES, PIECE_BYTES, PIECES, read_sample

ROW = "2024-03-01 08:00:00,12.5,360.0\n"
LARGEST = HEAD_BYTES + PIECES * PIECE_BYTES


@pytest.mark.parametrize("size", [HEAD_BYTES // 2, HEAD_BYTES + 100_000, LARGEST - 100])
def test_rows_that_head_and_pieces_would_cover_are_read_once(tmp_path: Path, size: int) -> None:
    rows = size // len(ROW)
    (tmp_path / "log.csv").write_text("time,speed,voltage\n" + ROW * rows)
    sample = read_sample(tmp_path / "log.csv")
    assert set(sample.rows["#"]) == {0}
    assert sample.rows.height == rows


def test_one_broken_byte_does_not_spoil_the_header(tmp_path: Path) -> None:
    text = ("time,Länge,Straße\n" + ROW * 3).encode().replace(b"360.0", b"36\xff", 1)
    (tmp_path / "log.csv").write_bytes(text)
    assert read_sample(tmp_path / "log.csv").columns == ["time", "Länge", "Straße"]


def test_a_larger_file_is_looked_into_here_and_there(tmp_path: Path) -> None:
    rows = 2 * LARGEST // len(ROW)
    (tmp_path / "log.csv").write_text("time,speed,voltage\n" + ROW * rows)
    sample = read_sample(tmp_path / "log.csv")
    assert sample.rows["#"].n_unique() == PIECES + 1
    assert sample.rows.height < rows
