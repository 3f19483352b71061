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

out, calls, walk, method = sys.argv[1:]
root = str(Path(fedwatt.__file__).parent) + "/"
called = {}
traced = {(root + file, name.rpartition(".")[2]) for file, name in json.loads(walk)}

def follow(frame, event, argument):
    code = frame.f_code
    if event != "call":
        return
    if (code.co_filename, code.co_name) in traced:
        called.setdefault((code.co_filename.removeprefix(root), code.co_qualname), None)
    if code.co_name == "save_checkpoint":  # the end of the first round
        Path(calls).write_text(json.dumps(list(called)))
        os._exit(0)

options = ["run", "--method", method, "--rounds", "1", "--vehicles", "3", "--seeds", "1"]
options += ["--set", "data.stride=60", "--set", "fleet.trips=5"]
threading.setprofile(follow)
sys.setprofile(follow)
ended = CliRunner().invoke(app, [*options, "--no-baselines", "--out", out])
sys.exit("It ended without a checkpoint: " + ended.output)
"""


def test_the_page_is_short_and_its_walks_name_few_files() -> None:
    assert len(PAGE.split()) <= 2000
    walks = re.split(r"^\*\*\d\. ", PAGE.partition("## Three walks")[2], flags=re.MULTILINE)[1:]
    walks[-1] = walks[-1].partition("\n## ")[0]
    # A walk of the second kind is its table; what follows names files for other purposes.
    files = [set(re.findall(r"`([\w/]+\.py)`", walk.partition("\n\nFor ")[0])) for walk in walks]
    assert [len(names) <= most for names, most in zip(files, (12, 12, 15), strict=True)] == [
        True
    ] * 3


def test_every_package_is_in_the_table() -> None:
    packages = {folder.name for folder in LIBRARY.iterdir() if (folder / "__init__.py").is_file()}
    assert packages | {"tables"} == PACKAGES


def test_paths_exist() -> None:
    places = LIBRARY, ROOT, LIBRARY / "engine" / "kernels"
    named = set(re.findall(r"`([\w/]+/(?:\w+\.\w+)?|\w+\.(?:py|c|cu|toml|csv))`", PAGE))
    assert len(named) > 60
    missing = [name for name in named if not any((place / name).exists() for place in places)]
    assert missing == []


def calls_of(method: str, walk: list[tuple[str, str]], folder: Path) -> list[tuple[str, str]]:
    """Return the calls of `walk` in the first round of a run, in the order of their first call."""
    # A process per run: a composition that was traced before is not traced again.
    calls = folder / "calls.json"
    command = [sys.executable, "-c", FOLLOW, folder / "run", calls, json.dumps(walk), method]
    subprocess.run(command, check=True, timeout=300)
    called = [tuple(call) for call in json.loads(calls.read_text(encoding="utf-8"))]
    return [call for call in called if call in walk]


def test_a_round_of_fo_ri_fedavg_goes_through_the_files_of_its_walk(tmp_path: Path) -> None:
    assert len(WALK) == 12
    assert calls_of("fo-ri-fedavg", WALK, tmp_path) == WALK


def test_a_run_of_fedavg_goes_through_eleven_files(tmp_path: Path) -> None:
    front = [
        ("runs/run.py", "Run.execute"),
        ("runs/simulation.py", "Simulation.open"),
        ("runs/folder.py", "train_method"),
    ]
    rules = [WALK[number - 1] for number in (4, 8, 9)]  # the rows that drop out
    expected = front + [call for call in WALK if call not in rules]
    assert len({file for file, _ in expected}) == 11
    assert calls_of("fedavg", front + WALK, tmp_path) == expected
