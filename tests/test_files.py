"""Files that are whole or not there, and folders changed by one at a time."""

from threading import Event, Thread

import pytest

from fedwatt.errors import RunError
from fedwatt.files import append_rows, exclusively, read_rows, write_atomically, write_text


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


def test_one_at_a_time_is_inside_a_folder(tmp_path) -> None:
    arrived = Event()
    inside = Event()

    def other() -> None:
        arrived.set()
        with exclusively(tmp_path / "new"):
            inside.set()

    thread = Thread(target=other)
    with exclusively(tmp_path / "new"):
        thread.start()
        arrived.wait()
        assert not inside.wait(0.1)
        with exclusively(tmp_path / "another"):
            pass
    assert inside.wait(10)
    thread.join()


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


def test_an_error_inside_lets_the_next_one_in(tmp_path) -> None:
    with pytest.raises(ValueError), exclusively(tmp_path):
        raise ValueError
    with exclusively(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunError, match=r"Cannot write .*below"),
        exclusively(tmp_path / "file" / "below"),
    ):
        pass


def test_a_folder_that_cannot_be_locked_is_named(tmp_path, monkeypatch) -> None:
    def refuse(file, how) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(RunError, match="Function not implemented"), exclusively(tmp_path):
        pass
