"""What a server is started with."""

import resource

import pytest

pytest.importorskip("flwr")

from fedwatt.deploy.superlink import open_files, parts
from fedwatt.errors import SettingError


def test_a_part_that_there_is_none_of_is_refused() -> None:
    assert parts("") == frozenset()
    assert parts("index, waiting") == {"index", "waiting"}
    with pytest.raises(SettingError, match=r"Unknown part 'indx'. Did you mean 'index'\?"):
        parts("indx")


def test_a_server_opens_as_many_files_as_it_may() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
