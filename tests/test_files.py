"""Files that are whole or not there."""

import pytest

from fedwatt.errors import RunError
from fedwatt.files import append_rows, read_rows, write_atomically, write_text


def test_a_write_that_fails_leaves_the_old_file(tmp_path) -> None:
    file = tmp_path / "below" / "a.txt"
    write_text(file, "old")

    def fail(path) -> None:
        path.write_text("half of the n")
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match=r"a.txt: No space left on device"):
        write_atomically(file, fail)
    assert [path.name for path in file.parent.iterdir()] == ["a.txt"]
    assert file.read_text() == "old"


def test_lines_are_added_after_the_last_whole_one(tmp_path) -> None:
    path = tmp_path / "below" / "lines"
    assert read_rows(path) == []
    append_rows(path, ["one", "zwölf"])
    append_rows(path, [])
    with path.open("ab") as file:  # the power goes out while a long line is being written
        file.write(b"x" * 10_000)
    assert read_rows(path) == ["one", "zwölf"]
    append_rows(path, ["three"])
    assert path.read_text() == '"one"\n"zwölf"\n"three"\n'
    for end in "\u2028\u2029\u0085\r\x0c":  # ends of lines elsewhere; here a name may hold them
        append_rows(path, [f"a{end}b"])
        assert read_rows(path)[-1] == f"a{end}b"
    path.write_bytes(b"never a whole line")
    append_rows(path, ["first"])
    assert read_rows(path) == ["first"]
