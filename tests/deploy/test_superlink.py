"""What a server is started with."""

import resource

import pytest

pytest.importorskip("flwr")

from fedwatt.deploy import flower_server, superlink
from fedwatt.deploy.door import Door
from fedwatt.deploy.shortcut import Shortcut
from fedwatt.deploy.superlink import open_files, parts
from fedwatt.errors import SettingError

WHOLE = {"whole": True}


def test_a_part_that_there_is_none_of_is_refused() -> None:
    assert parts("") == frozenset()
    assert parts("index, waiting") == {"index", "waiting"}
    with pytest.raises(SettingError, match=r"Unknown part 'indx'. Did you mean 'index'\?"):
        parts("indx")


@pytest.mark.parametrize(
    ("without", "patches", "layers"),
    [
        ("", ["index", "connections"], [WHOLE, {"holds": True, **WHOLE}]),
        ("waiting", ["index", "connections"], [WHOLE, {"holds": False, **WHOLE}]),
        ("index", ["connections"], [WHOLE, {"holds": False, **WHOLE}]),
        ("connections shortcut", ["index"], [{"whole": False}]),
        ("whole", ["index", "connections"], [{"whole": False}, {"holds": True, "whole": False}]),
    ],
)
def test_a_server_does_without_the_parts_that_are_named(
    without: str, patches: list[str], layers: list[dict[str, bool]], monkeypatch
) -> None:
    done, started = [], []
    monkeypatch.setattr(superlink, "open_files", lambda: None)
    monkeypatch.setattr(flower_server, "questions_by_node", lambda: done.append("index"))
    monkeypatch.setattr(flower_server, "keep_connections", lambda: done.append("connections"))
    monkeypatch.setattr(flower_server, "start_superlink", lambda *own: started.extend(own))
    superlink.start(parts(without))
    assert done == patches
    assert [layer.kwargs for layer in started] == layers
    assert [layer.cls for layer in started] == [Door, Shortcut][: len(layers)]


def test_a_server_opens_as_many_files_as_it_may() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
