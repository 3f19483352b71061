"""Runs whose vehicles remember on disk: stopped, killed and continued bit for bit."""

from pathlib import Path

import pytest

from fedwatt.errors import RunError
from fedwatt.federation import client_state
from fedwatt.runs import execute, from_toml
from tests.runs.killing import kill_after
from tests.runs.test_execute import CONFIG as PLAIN
from tests.runs.test_execute import Silent, results

CONFIG = PLAIN[: PLAIN.index("[[method]]")] + '[[method]]\nname = "scaffold"\n'
CONFIG += '[[method]]\nname = "moon"\ncontrast_weight = 1.0\n'


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that nobody disturbed, with everything in memory."""
    out = tmp_path_factory.mktemp("whole") / "run"
    execute(from_toml(CONFIG), out, Silent())
    assert not list(out.rglob("*.rows"))
    return out


@pytest.fixture(autouse=True)
def everything_on_disk(whole: Path, monkeypatch) -> None:
    monkeypatch.setattr(client_state, "DENSE_BYTES", 0)


@pytest.mark.parametrize("stop_after", [1, 4, 8])
def test_an_interrupted_run_continues_bit_for_bit(whole: Path, tmp_path: Path, stop_after) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        execute(from_toml(CONFIG), out, Silent(stop_after), checkpoint_seconds=1e9)
    assert list(out.rglob("*.rows"))
    execute(from_toml(CONFIG), out, Silent(), resume=True)
    assert results(out) == results(whole)


KILLED = """
    import sys
    from pathlib import Path
    from fedwatt.federation import client_state
    from fedwatt.runs import execute, from_toml
    from tests.runs.test_execute import Silent
    from tests.runs.test_memory import CONFIG

    class Loud(Silent):
        def on_round(self, label, state, record):
            print(label, state.round, flush=True)

    client_state.DENSE_BYTES = 0
    every = float(sys.argv[2])
    execute(from_toml(CONFIG), Path(sys.argv[1]), Loud(), checkpoint_seconds=every)
"""


# A checkpoint after every round, or so rarely that rounds after the last one are lost and must
# not have touched what it refers to.
@pytest.mark.parametrize(("lines", "every"), [(2, 0.0), (9, 0.0), (4, 0.03), (11, 0.03)])
def test_a_killed_run_continues_bit_for_bit(whole, tmp_path: Path, lines: int, every) -> None:
    out = tmp_path / "run"
    kill_after(lines, KILLED, str(out), str(every))
    execute(from_toml(CONFIG), out, Silent(), resume=True)
    assert results(out) == results(whole)


def test_a_finished_run_is_left_as_it_is(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    execute(from_toml(CONFIG), out, Silent())
    again = Silent()
    execute(from_toml(CONFIG), out, again, resume=True)
    assert again.rounds == 0
    assert results(out) == results(whole)


def test_damaged_rows_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        execute(from_toml(CONFIG), out, Silent(3))
    (rows,) = out.rglob("*.rows")
    rows.write_bytes(bytes(len(rows.read_bytes())))
    with pytest.raises(RunError, match=r"scaffold/memory/control.rows\) is damaged"):
        execute(from_toml(CONFIG), out, Silent(), resume=True)
