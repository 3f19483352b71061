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
entered = set()
in_round = False
traced = {(root + file, name.rpartition(".")[2]) for file, name in json.loads(walk)}

def follow(frame, event, argument):
    global in_round
    code = frame.f_code
    if event == "return" and code.co_name == "aggregated":
        in_round = False
    if event != "call" or not code.co_filename.startswith(root):
        return
    in_round = in_round or code.co_qualname == "Loop.advance"
    if in_round:
        entered.add(code.co_filename.removeprefix(root))
    if (code.co_filename, code.co_name) in traced:
        called.setdefault((code.co_filename.removeprefix(root), code.co_qualname), None)
    if code.co_name == "save_checkpoint":  # the end of the first round
        Path(calls).write_text(json.dumps([list(called), sorted(entered)]))
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


HELPERS = {
    "engine/batches.py": "windows in random order",
    "engine/job.py": "the type that engines are given",
    "engine/pool.py": "the windows of a probe",
    "federation/federation.py": "the series of the fleet on a device",
    "federation/state.py": "the type of the state between two rounds",
    "federation/work.py": "the type of a round's updates",
    "methods/method.py": "the type of a list of rules",
    "methods/rule.py": "the base class of local rules",
    "metrics/rounds.py": "the stopwatch",
    "models/model.py": "the base class of models",
    "randomness.py": "keyed draws",
    "threads.py": "work on several cores",
    "windows/client.py": "names and window counts of the fleet",
}
"""Files that a round enters besides those of its walk: types, base classes and draws."""


def followed(
    method: str, walk: list[tuple[str, str]], folder: Path
) -> tuple[list[tuple[str, str]], set[str]]:
    """Return the calls of `walk` in a run's first round, by first call, and all files it enters.

    The files are those between `Loop.advance` and the new weights.
    """
    # A process per run: a composition that was traced before is not traced again.
    calls = folder / "calls.json"
    command = [sys.executable, "-c", FOLLOW, folder / "run", calls, json.dumps(walk), method]
    subprocess.run(command, check=True, timeout=300)
    called, entered = json.loads(calls.read_text(encoding="utf-8"))
    return [call for call in map(tuple, called) if call in walk], set(entered)


def unlisted(entered: set[str], walk: list[tuple[str, str]]) -> set[str]:
    """Return the entered files that are neither of a walk, nor helpers, nor of the C path."""
    remainder = entered - {file for file, _ in walk} - HELPERS.keys()
    return {file for file in remainder if not file.startswith("engine/kernels/")}


def test_a_round_of_fo_ri_fedavg_goes_through_the_files_of_its_walk(tmp_path: Path) -> None:
    calls, entered = followed("fo-ri-fedavg", WALK, tmp_path)
    assert calls == WALK
    assert len({file for file, _ in WALK}) == 12
    assert unlisted(entered, WALK) == set()
    assert HELPERS.keys() <= entered


def test_a_run_of_fedavg_goes_through_twelve_files_and_enters_no_other(tmp_path: Path) -> None:
    front = [
        ("runs/run.py", "Run.execute"),
        ("runs/simulation.py", "Simulation.open"),
        ("runs/folder.py", "train_method"),
    ]
    rules = [WALK[number - 1] for number in (5, 9, 10)]  # the rows that drop out
    expected = front + [call for call in WALK if call not in rules]
    assert len({file for file, _ in expected}) == 12
    calls, entered = followed("fedavg", front + WALK, tmp_path)
    assert calls == expected
    assert unlisted(entered, expected) == set()
