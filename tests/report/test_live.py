"""The live page: what its server answers, and what a browser shows of it."""

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fedwatt.errors import RunError
from fedwatt.report import live as serve
from fedwatt.report.live import serving
from fedwatt.runs.config import from_toml
from fedwatt.runs.observers import FILE
from fedwatt.runs.run import Run
from tests.runs.killing import finish, kill_after
from tests.runs.test_execute import Silent
from tests.runs.test_observer import SMALL

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
in_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium: install Debian's package 'chromium' to run these"
)


def get(address: str) -> str:
    with urlopen(address) as reply:
        return reply.read().decode()


def test_the_log_is_served_from_a_byte_on_and_only_whole_lines(tmp_path: Path) -> None:
    with serving(tmp_path, port=0) as address:
        assert get(f"{address}progress?from=0") == ""
        (tmp_path / FILE).write_text('{"a": 1}\n{"b": 2}\n{"c"')
        assert get(f"{address}progress?from=0") == '{"a": 1}\n{"b": 2}\n'
        assert get(f"{address}progress?from=9") == '{"b": 2}\n'
        with pytest.raises(HTTPError, match="404"):
            get(f"{address}report")
        with pytest.raises(HTTPError, match="404"):
            get(f"{address}{FILE}")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with serving(tmp_path, port=0) as address:
        taken = int(address.rstrip("/").rpartition(":")[2])
        with (
            pytest.raises(RunError, match=f"Port {taken} cannot be listened on"),
            serving(tmp_path, port=taken),
        ):
            pass


def looked_at(address: str, profile: Path) -> str:
    """The text of the page after some seconds of its own time."""
    assert CHROMIUM is not None
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-sync dump-dom "
    flags += "disable-background-networking disable-component-update virtual-time-budget=12000"
    done = subprocess.run(
        [CHROMIUM, *(f"--{flag}" for flag in flags.split()), f"--user-data-dir={profile}", address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    body = done.stdout.partition("<script>")[0].partition("<body>")[2]
    return unescape(re.sub(r"<[^>]*>", " ", body))


LIVE = """
import sys
from pathlib import Path
from fedwatt.runs.config import from_toml
from fedwatt.runs.run import Run
from tests.runs.test_observer import SMALL
from tests.runs.test_execute import Silent

class Loud(Silent):
    def on_round(self, label, state, record):
        print(label, state.round, flush=True)

config = from_toml(SMALL.replace("rounds = 2", "rounds = 40"))
Run(config, out=Path(sys.argv[1]), observer=Loud(), resume=True, checkpoint_seconds=0).execute()
"""


@in_browser
def test_a_run_is_watched_while_it_is_killed_and_resumed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with serving(run, port=0) as address:
        assert "Waiting for the run to begin" in looked_at(address, tmp_path / "browser")
        kill_after(3, LIVE, str(run))
        seen = looked_at(address, tmp_path / "browser")
        assert "The run is in progress" in seen
        assert re.search(r"round \d+ of 40 · .* rounds/s, .* left", seen)
        assert "car-003" in seen
        finish(LIVE, str(run))
        seen = looked_at(address, tmp_path / "browser")
    assert "This run finished on" in seen
    assert "round 40 of 40 · done" in seen
    assert "continues after round" in seen


@in_browser
def test_an_open_page_shows_what_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Run(from_toml(SMALL), out=tmp_path / "run", observer=Silent()).execute()
    complete = (tmp_path / "run" / FILE).read_bytes()
    asked: list[int] = []

    def one_line_more(page: serve.LivePage, start: int) -> bytes:
        asked.append(start)
        return complete[start : complete.find(b"\n", start) + 1]

    monkeypatch.setattr(serve.LivePage, "lines", one_line_more)
    with serving(tmp_path / "run", port=0) as address:
        seen = looked_at(address, tmp_path / "browser")
    assert len(set(asked)) > 5  # a question for each line, all of one page
    assert "round 2 of 2 · done" in seen
