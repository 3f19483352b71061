"""A backup that is taken while a run goes on, put back elsewhere, goes on to the same bits."""

import io
import json
import shutil
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import torch
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.deploy.operate.backup import CONTENTS, back_up, read_contents, restore
from fedwatt.deploy.plan.store import KeyStore
from fedwatt.deploy.wire import unpack
from fedwatt.errors import RunError
from tests.deploy.fleets import Loopback, config_text, deployed, loopback, make_fleet, weights
from tests.deploy.operate.faulty import make_store

ROUNDS = 4


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("backup") / "fleet")


@pytest.mark.parametrize(("method", "killed"), [("fedavg", 4), ("scaffold", 3)])
def test_a_killed_server_is_restored_elsewhere_and_goes_on_bit_for_bit(
    method: str, killed: int, fleet: Path, tmp_path: Path
) -> None:
    """The backup is of the third round, while it is asked; what vehicles remember stays theirs."""
    text = config_text(fleet, method, ROUNDS)
    complete = deployed(text, loopback(fleet, tmp_path / "x"), tmp_path / "whole")
    run = tmp_path / "run"
    saved = tmp_path / "backup.tar.gz"

    def at_work(kind: str, node: int, reply: bytes) -> bytes:
        training = len({unpack(b).values["round"] for _, k, b in grid.asked if k == "train"})
        if kind == "train" and training == 3 and not saved.exists():
            (run / ".half.part").write_text("half")
            with (run / "events.jsonl").open("a") as log:
                log.write('{"half of a line')
            back_up(saved, None, [run], keys=False)
        if kind == "train" and training == killed:
            raise KeyboardInterrupt
        return reply

    grid: Loopback = loopback(fleet, tmp_path / "y")
    grid.tamper = at_work
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, run)
    shutil.rmtree(run)  # the disk is gone
    restore(saved, tmp_path / "elsewhere")
    again = tmp_path / "elsewhere" / "runs" / "run"
    assert not list(again.rglob(".*"))
    assert (again / "events.jsonl").read_bytes().endswith(b"}\n")
    deployed(text, loopback(fleet, tmp_path / "y"), again, resume=True)
    expected = weights(complete)
    found = weights(again)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_private_keys_are_in_a_backup_only_where_they_are_asked_for(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", "car-001")
    (store.folder / "flower").mkdir()
    (store.folder / "flower" / "config.toml").write_text("of no use elsewhere")
    secrets = {"key.pem"}
    without = back_up(tmp_path / "public.tar.gz", store.folder, [], keys=False)
    assert set(without.left_out) == {f"store/{name}" for name in secrets}
    with tarfile.open(tmp_path / "public.tar.gz") as archive:
        names = set(archive.getnames())
    assert names == {CONTENTS, *without.files}
    assert {"store/owner.pem", "store/certificate.pem"} <= names
    assert [name for name in names if name.startswith("store/vehicles/car-001-")]
    assert not [name for name in names if "flower" in name or name.endswith(("key.pem", ".lock"))]
    assert not back_up(tmp_path / "all.tar.gz", store.folder, [], keys=True).left_out
    assert (tmp_path / "all.tar.gz").stat().st_mode & 0o777 == 0o600
    restore(tmp_path / "all.tar.gz", tmp_path / "elsewhere")
    again = KeyStore(tmp_path / "elsewhere" / "store")
    for name in secrets:
        assert (again.folder / name).read_bytes() == (store.folder / name).read_bytes()
        assert (again.folder / name).stat().st_mode & 0o777 == 0o600
    assert again.owner.stat().st_mode == store.owner.stat().st_mode


def test_a_damaged_backup_is_refused_and_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "deployment.json").write_text("{}")
    saved = tmp_path / "backup.tar.gz"
    back_up(saved, None, [tmp_path / "run"], keys=False)
    content = saved.read_bytes()
    refused = 0
    for at in range(60, len(content), 7):
        saved.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        # Some bits of a compressed file mean nothing; all others show.
        with suppress(RunError):
            restore(saved, tmp_path / "new")
            refused -= 1
            assert (tmp_path / "new" / "runs" / "run" / "deployment.json").read_text() == "{}"
            shutil.rmtree(tmp_path / "new")
        refused += 1
    assert refused > 20
    assert {path.name for path in tmp_path.iterdir()} == {"run", "backup.tar.gz"}
    saved.write_bytes(content[:100])
    with pytest.raises(RunError, match="is not a whole backup"):
        read_contents(saved)
    saved.write_bytes(content)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(RunError, match="is not empty"):
        restore(saved, tmp_path / "full")


def test_a_forged_backup_writes_nothing_outside(tmp_path: Path) -> None:
    saved = tmp_path / "forged.tar.gz"
    subject = {"version": "0", "at": "", "runs": [], "files": [], "left_out": []}
    with tarfile.open(saved, "w:gz") as archive:
        for name, text in (("../outside", "x"), (CONTENTS, json.dumps(subject))):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    with pytest.raises(RunError, match="is damaged"):
        restore(saved, tmp_path / "new")
    assert not (tmp_path / "outside").exists()


def test_the_commands_say_what_is_missing_and_how_to_go_on(tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_store(store)
    (tmp_path / "fleet").mkdir()
    saved = str(tmp_path / "b.tar.gz")
    run = str(tmp_path / "fleet")
    done = CliRunner().invoke(app, ["deploy", "backup", saved, "--run", run, "--store", str(store)])
    assert done.exit_code == 0, done.output
    assert "1 private key left out; --private-keys includes them." in done.output
    done = CliRunner().invoke(app, ["deploy", "restore", saved, str(tmp_path / "new")])
    changed = done.output.replace("\n", "")
    assert f"Put back the private key {tmp_path / 'new' / 'store' / 'key.pem'}" in changed
    assert f"deploy run --resume --out {tmp_path / 'new' / 'runs' / 'fleet'}" in changed
