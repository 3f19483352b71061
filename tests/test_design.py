"""docs/design.md against the code: its packages, its paths and its walk of a round."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "fedwatt"
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
PACKAGES = set(re.findall(r"^\| `(\w+)(?:/|\.py)` \|.*\|$", PAGE, re.MULTILINE))
WALK = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)

FOLLOW = """
import json, os, sys, threading
from pathlib import Path
from typer.testing import CliRunner
import fedwatt
from fedwatt.cli import app

root, found = str(Path(fedwatt.__file__).parent) + "/", {}
wanted = {(file, name.rpartition(".")[2]) for file, name in json.loads(sys.argv[3])}
wanted = {(root + file, name) for file, name in wanted}

def follow(frame, event, argument):
    code = frame.f_code
    if event == "call" and (code.co_filename, code.co_name) in wanted:
        found.setdefault((code.co_filename.removeprefix(root), code.co_qualname), None)
        if code.co_name == "save_checkpoint":  # the end of the walk
            Path(sys.argv[2]).write_text(json.dumps(list(found)))
            os._exit(0)

options = ["run", "--method", "fo-ri-fedavg", "--rounds", "1", "--vehicles", "3", "--seeds", "1"]
options += ["--set", "data.stride=60", "--set", "fleet.trips=5"]
threading.setprofile(follow)
sys.setprofile(follow)
ended = CliRunner().invoke(app, [*options, "--no-references", "--out", sys.argv[1]])
sys.exit("It ended without a checkpoint: " + ended.output)
"""


def test_every_package_is_in_the_table() -> None:
    packages = {folder.name for folder in LIBRARY.iterdir() if (folder / "__init__.py").is_file()}
    assert packages | {"tables"} == PACKAGES


def test_paths_exist() -> None:
    places = LIBRARY, ROOT, LIBRARY / "engine" / "kernels"
    named = set(re.findall(r"`([\w/]+/(?:\w+\.\w+)?|\w+\.(?:py|c|cu|toml|csv))`", PAGE))
    assert len(named) > 120
    missing = [name for name in named if not any((place / name).exists() for place in places)]
    assert missing == []


def test_a_round_goes_through_the_files_of_its_walk_in_that_order(tmp_path: Path) -> None:
    # A process of its own: what was traced before is not traced again.
    out, calls = tmp_path / "run", tmp_path / "calls.json"
    command = [sys.executable, "-c", FOLLOW, out, calls, json.dumps(WALK)]
    subprocess.run(command, check=True, timeout=300)
    called = [tuple(one) for one in json.loads(calls.read_text(encoding="utf-8"))]
    assert len(WALK) == 20
    assert [one for one in called if one in WALK] == WALK
