"""Run folders: killed and continued, full disks, damaged checkpoints."""

import os
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fedwatt.errors import RunError
from fedwatt.federation import RoundRecord, State
from fedwatt.runs.config import from_toml
from fedwatt.runs.observers import Observer
from fedwatt.runs.run import Run
from fedwatt.runs.tables import read_table
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet
from tests.runs.killing import kill_after

CONFIG = """
seeds = [1, 2]
device = "cpu"
[fleet]
vehicles = 4
[data]
window = 10
stride = 20
[model]
hidden = [8, 4]
[training]
rounds = 6
participation = 0.5
batch = 16
[availability]
p_leave = 0.2
p_join = 0.5
[[method]]
name = "fedavg"
[[method]]
name = "fo-ri-fedavg"
directions = 2
points = 4
probe_every = 2
radius = 0.5
"""
RESULTS = ("rounds.parquet", "clients.parquet", "vehicles.parquet", "model.safetensors")


class Silent(Observer):
    """Follows a run without a word, and may stop it."""

    def __init__(self, stop_after: int = 0) -> None:
        self.rounds = 0
        self.stop_after = stop_after

    def on_round(self, label: str, state: State, record: RoundRecord) -> None:
        self.rounds += 1
        if self.rounds == self.stop_after:
            raise KeyboardInterrupt


def results(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RESULTS}


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory) -> Path:
    """A run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    Run(from_toml(CONFIG), out=out, observer=Silent()).execute()
    return out


def test_a_run_folder_is_complete(complete_run: Path) -> None:
    rounds = read_table(complete_run, "rounds").to_pylist()
    assert len(rounds) == 2 * 2 * 7  # methods, seeds, rounds 0 to 6
    assert read_table(complete_run, "timing").num_rows == 2 * 7
    vehicles = read_table(complete_run, "vehicles").to_pylist()
    assert {row["model"] for row in vehicles} == {"final", "best", "last"}
    assert from_toml((complete_run / "config.toml").read_text()) == from_toml(CONFIG)
    environment = (complete_run / "environment.json").read_text()
    for word in ("splits", "partition", "participation", "torch", "measured"):
        assert word in environment
    assert not list(complete_run.rglob("*.part"))


def test_the_configuration_in_a_run_folder_repeats_the_run(
    complete_run: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    Run(
        from_toml((complete_run / "config.toml").read_text()), out=again, observer=Silent()
    ).execute()
    assert results(again) == results(complete_run)


@pytest.mark.parametrize("stop_after", [1, 4, 8])
def test_an_interrupted_run_continues_bit_for_bit(
    complete_run: Path, tmp_path: Path, stop_after
) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        Run(
            from_toml(CONFIG), out=out, observer=Silent(stop_after), checkpoint_seconds=1e9
        ).execute()
    again = Silent()
    Run(from_toml(CONFIG), out=out, observer=again, resume=True).execute()
    # The round it was stopped in was complete; it is not done twice.
    assert again.rounds == 12 - stop_after
    assert results(out) == results(complete_run)


KILLED = """
    import sys
    from pathlib import Path
    from fedwatt.runs.config import from_toml
    from fedwatt.runs.run import Run
    from tests.runs.test_execute import CONFIG, Silent

    class Loud(Silent):
        def on_round(self, label, state, record):
            print(label, state.round, flush=True)

    Run(from_toml(CONFIG), out=Path(sys.argv[1]), observer=Loud(), checkpoint_seconds=0).execute()
"""


@pytest.mark.parametrize("lines", [2, 9])
def test_a_killed_run_continues_bit_for_bit(complete_run: Path, tmp_path: Path, lines: int) -> None:
    out = tmp_path / "run"
    kill_after(lines, KILLED, str(out))
    Run(from_toml(CONFIG), out=out, observer=Silent(), resume=True).execute()
    assert results(out) == results(complete_run)


def test_a_finished_run_is_left_as_it_is(complete_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(complete_run, out)
    again = Silent()
    Run(from_toml(CONFIG), out=out, observer=again, resume=True).execute()
    assert again.rounds == 0
    assert results(out) == results(complete_run)


def test_another_run_is_never_overwritten(complete_run: Path) -> None:
    before = results(complete_run)
    with pytest.raises(RunError, match=r"already holds a run. Continue it with --resume"):
        Run(from_toml(CONFIG), out=complete_run, observer=Silent()).execute()
    other = from_toml(CONFIG.replace("rounds = 6", "rounds = 7"))
    with pytest.raises(RunError, match=r"configuration: training.rounds 6 → 7\. A resumed run"):
        Run(other, out=complete_run, observer=Silent(), resume=True).execute()
    assert results(complete_run) == before


def interrupted(tmp_path: Path) -> Path:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        Run(from_toml(CONFIG), out=out, observer=Silent(2)).execute()
    return out


@pytest.mark.parametrize("file", ["state.safetensors", "rounds.parquet", "manifest.json"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, file: str) -> None:
    out = interrupted(tmp_path)
    (path,) = out.rglob(f"checkpoint/fedavg/round-*/{file}")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(RunError, match=r"checkpoint .* is damaged .* Delete that folder"):
        Run(from_toml(CONFIG), out=out, observer=Silent(), resume=True).execute()
    assert not (out / "rounds.parquet").exists()


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    complete_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        Run(from_toml(CONFIG), out=out, observer=Silent(5), checkpoint_seconds=0.0).execute()
    ordered = sorted((out / "checkpoint" / "fedavg").glob("round-*"))
    assert [folder.name for folder in ordered] == ["round-000003", "round-000004", "round-000005"]
    (ordered[2] / "state.safetensors").write_bytes(b"")
    (ordered[1] / "manifest.json").unlink()
    again = Silent()
    Run(from_toml(CONFIG), out=out, observer=again, resume=True).execute()
    assert "round-000005 is damaged" in caplog.text and "round-000004 is damaged" in caplog.text
    assert again.rounds == 12 - 3
    assert results(out) == results(complete_run)


@pytest.mark.parametrize("file", ["state.safetensors", "rounds.parquet", "manifest.json"])
def test_a_truncated_or_missing_part_of_a_checkpoint_is_refused(tmp_path: Path, file: str) -> None:
    out = interrupted(tmp_path)
    (path,) = out.rglob(f"checkpoint/fedavg/round-*/{file}")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(RunError, match="is damaged"):
        Run(from_toml(CONFIG), out=out, observer=Silent(), resume=True).execute()
    path.unlink()
    with pytest.raises(RunError, match="is damaged"):
        Run(from_toml(CONFIG), out=out, observer=Silent(), resume=True).execute()


@pytest.mark.parametrize("text", ["[]", "{}", '{"round": 2, "sha256": {}}', "{"])
def test_a_manifest_that_says_too_little_is_refused(tmp_path: Path, text: str) -> None:
    out = interrupted(tmp_path)
    (path,) = out.rglob("checkpoint/fedavg/round-*/manifest.json")
    path.write_text(text)
    with pytest.raises(RunError, match=r"is damaged \(manifest.json"):
        Run(from_toml(CONFIG), out=out, observer=Silent(), resume=True).execute()


def test_other_data_under_the_same_name_is_refused(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    config = from_toml(CONFIG.replace("vehicles = 4", f"data = '{fleet}'"))
    write_fleet(fleet, synthetic_vehicles(4, seed=1, trips=6), source="one")
    with pytest.raises(KeyboardInterrupt):
        Run(config, out=tmp_path / "run", observer=Silent(2)).execute()
    shutil.rmtree(fleet)
    write_fleet(fleet, synthetic_vehicles(4, seed=2, trips=6), source="another")
    with pytest.raises(RunError, match="its data has changed"):
        Run(config, out=tmp_path / "run", observer=Silent(), resume=True).execute()


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 64 KiB, where the machine lets us have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let the tests mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(
    small_disk, complete_run
) -> None:
    out = small_disk / "run"
    with pytest.raises(RunError, match=r"Cannot write .*: .*(No space left|os error 28)"):
        Run(from_toml(CONFIG), out=out, observer=Silent(), checkpoint_seconds=0).execute()
    left = [path for path in out.rglob("*") if path.is_file()]
    assert left
    for path in left:  # whatever is there is whole
        assert not path.name.endswith(".part")
        if path.suffix == ".parquet":
            pq.read_table(path)
    assert not list(out.rglob(".part"))
    # With room again, it goes on to the same result.
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    Run(from_toml(CONFIG), out=out, observer=Silent(), resume=True).execute()
    assert results(out) == results(complete_run)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(RunError, match=f"Cannot write .*{os.sep}file{os.sep}run"):
        Run(from_toml(CONFIG), out=blocked / "run", observer=Silent()).execute()


def test_a_table_of_another_shape_is_refused(tmp_path: Path, complete_run: Path) -> None:
    shutil.copy(complete_run / "timing.parquet", tmp_path / "rounds.parquet")
    with pytest.raises(RunError, match="does not have the columns"):
        read_table(tmp_path, "rounds")
    with pytest.raises(RunError, match=r"has no clients.parquet"):
        read_table(tmp_path, "clients")
