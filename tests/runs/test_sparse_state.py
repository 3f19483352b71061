"""Runs with sparse client states: stopped, killed and continued bit for bit."""

from pathlib import Path

import pytest

from fedwatt.runs.config import from_toml
from fedwatt.runs.run import Run
from tests.runs.killing import kill_after
from tests.runs.test_execute import CONFIG as PLAIN
from tests.runs.test_execute import Silent, results

CONFIG = PLAIN[: PLAIN.index("[[method]]")] + '[[method]]\nname = "scaffold"\n'
CONFIG += '[[method]]\nname = "moon"\ncontrast_weight = 1.0\n'


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory) -> Path:
    """A run that nobody disturbed, with dense client states."""
    out = tmp_path_factory.mktemp("whole") / "run"
    Run(from_toml(CONFIG), out=out, observer=Silent()).execute()
    return out


@pytest.fixture(autouse=True)
def all_tables_sparse(complete_run: Path, monkeypatch) -> None:
    monkeypatch.setattr("fedwatt.federation.state.DENSE_BYTES", 0)


@pytest.mark.parametrize("stop_after", [1, 4, 8])
def test_an_interrupted_run_continues_bit_for_bit(
    complete_run: Path, tmp_path: Path, stop_after
) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        Run(
            from_toml(CONFIG), out=out, observer=Silent(stop_after), checkpoint_seconds=1e9
        ).execute()
    Run(from_toml(CONFIG), out=out, observer=Silent(), resume=True).execute()
    assert results(out) == results(complete_run)


KILLED = """
    import sys
    from pathlib import Path
    from fedwatt.federation import state
    from fedwatt.runs.config import from_toml
    from fedwatt.federation import state
    from fedwatt.runs.run import Run
    from tests.runs.test_execute import Silent
    from tests.runs.test_sparse_state import CONFIG

    class Loud(Silent):
        def on_round(self, label, state, record):
            print(label, state.round, flush=True)

    state.DENSE_BYTES = 0
    every = float(sys.argv[2])
    run = Run(from_toml(CONFIG), out=Path(sys.argv[1]), observer=Loud(), checkpoint_seconds=every)
    run.execute()
"""


# A checkpoint after every round, or so rarely that rounds after the last one are lost and must
# not have touched what it refers to.
@pytest.mark.parametrize(("lines", "every"), [(2, 0.0), (9, 0.0), (4, 0.03), (11, 0.03)])
def test_a_killed_run_continues_bit_for_bit(
    complete_run, tmp_path: Path, lines: int, every
) -> None:
    out = tmp_path / "run"
    kill_after(lines, KILLED, str(out), str(every))
    Run(from_toml(CONFIG), out=out, observer=Silent(), resume=True).execute()
    assert results(out) == results(complete_run)


def test_a_finished_run_is_left_as_it_is(complete_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    Run(from_toml(CONFIG), out=out, observer=Silent()).execute()
    again = Silent()
    Run(from_toml(CONFIG), out=out, observer=again, resume=True).execute()
    assert again.rounds == 0
    assert results(out) == results(complete_run)
