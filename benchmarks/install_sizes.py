"""Size of an installation, measured in clean environments from a built wheel.

    python benchmarks/install_sizes.py            # measure, write results/ and README's table
    python benchmarks/install_sizes.py --check    # README has what results/ says

Each environment also does what it is for: `train` trains on the built-in fleet and exports a
model, `edge` predicts with it and has no torch, the base shows its version.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from benchmarks.marked import filled, write_blocks

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "install_sizes.json"
README = ROOT / "README.md"
TRAINING = ("run", "--out", "runs/first")
PURPOSE = {
    "": "base package of the others",
    "edge": "prediction: `route`, `predict` (CSV), `EnergyPredictor`",
    "train": "fleets, training, reports and exports",
}
PLAN = "speed_mps,ambient_c\n" + "12.5,8\n" * 300


def megabytes(folder: Path) -> float:
    """Bytes of all files below a folder, in 10⁶."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command, which must succeed, and return its output."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=plain, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def installed(wheel: Path, extra: str, folder: Path) -> dict[str, Any]:
    """Install the wheel with one extra in a clean environment and return its size."""
    venv.create(folder, with_pip=True)
    packages = next((folder / "lib").glob("python*/site-packages"))
    before = megabytes(packages)
    what = f"{wheel}[{extra}]" if extra else wheel
    run(folder / "bin" / "pip", "install", "-q", "-c", ROOT / "constraints.txt", what, cwd=folder)
    listed = json.loads(run(folder / "bin" / "pip", "list", "--format", "json", cwd=folder))
    versions = {package["name"]: package["version"] for package in listed}
    size = {"megabytes": round(megabytes(packages) - before), "packages": len(listed) - 1}
    return size | {"torch": versions.get("torch", "")}


def measured() -> dict[str, Any]:
    """All three, each put to its use."""
    with tempfile.TemporaryDirectory(prefix="fedwatt-install-") as name:
        work = Path(name)
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", work, ROOT, cwd=work)
        (wheel,) = work.glob("fedwatt-*.whl")
        installations = {extra: installed(wheel, extra, work / f"env-{extra}") for extra in PURPOSE}
        tool = {extra: work / f"env-{extra}" / "bin" / "fedwatt" for extra in PURPOSE}
        run(tool[""], "--version", cwd=work)
        run(tool["train"], *TRAINING, cwd=work)
        made = ["data", "generate", "--vehicles", "1", "--out", "fleet"]
        run(tool["train"], *made, cwd=work)
        out = ["--vehicle", "fleet/car-001", "--out", "car.onnx"]
        run(tool["train"], "export", "runs/first", *out, cwd=work)
        (work / "plan.csv").write_text(PLAN)
        output = run(tool["edge"], "predict", "car.onnx", "plan.csv", cwd=work)
        if "predicted energy" not in output or installations["edge"]["torch"]:
            sys.exit(f"The environment that only predicts does not: {output}")
    system = {
        "python": platform.python_version(),
        "machine": f"{sys.platform} {platform.machine()}",
    }
    return {**system, "wheel": wheel.name, "installed": installations}


def table(record: dict[str, Any]) -> str:
    """Return the record as README shows it."""
    lines = ["| `pip install` | for | installed | torch |", "|---|---|--:|---|"]
    for extra, installation in record["installed"].items():
        what = f"'fedwatt[{extra}]'" if extra else "fedwatt"
        torch = installation["torch"] or "no"
        lines.append(
            f"| `{what}` | {PURPOSE[extra]} | {installation['megabytes']:,} MB | {torch} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare README with the record")
    if parser.parse_args().check:
        record = json.loads(RECORD.read_text())
        text = README.read_text(encoding="utf-8")
        sys.exit(text != filled(text, {"install": table(record)}))
    record = measured()
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    write_blocks(README, {"install": table(record)})


if __name__ == "__main__":
    main()
