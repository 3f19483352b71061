"""Provenance of a run: its code, libraries, hardware, fleet and data hashes.

Runs and records of the reproduction hold the same entries, so that a number can be traced to the
code that made it, and a reader knows whether a repetition should agree to the last bit. Hashes show
whether two runs saw the same data.

config.toml lists code outside fedwatt that a run depends on, a hash of its source file for each
reference:

    [plugins.methods]
    "./sam.py:sam" = "5f3e…"
"""

import os
import platform
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from math import ceil, floor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from fedwatt import plugins
from fedwatt.engine.version import GPU_VERSION, PACKAGE, VERSION, sources_digest
from fedwatt.errors import SettingError
from fedwatt.files import parse_toml
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, METHODS, SERVERS
from fedwatt.models import MODELS
from fedwatt.models.catalogue import OWN
from fedwatt.windows import FEATURE_SETS, FEATURES, DataSettings, Fleet
from fedwatt.windows.targets import TARGETS

PACKAGES = ("torch", "numpy", "pyarrow", "safetensors")
UNKNOWN = "unknown"
COMMIT = "FEDWATT_COMMIT"
"""Environment variable that names the commit where there is no repository, as in a container."""
DRIVER = Path("/proc/driver/nvidia/version")


def provenance(device: torch.device, *, deterministic: bool = False) -> dict[str, Any]:
    """Return the provenance of a run: code, libraries and machine.

    `deterministic`: training was, in the mode of that name. On a processor the same machine gives
    the same bits in any mode; on a GPU the rounding of a product depends on who is in its stack.
    """
    on_gpu = device.type == "cuda"
    # Not installed where only the sources are there, so its metadata may be missing.
    fedwatt_version = import_module("fedwatt").__version__
    versions = {"fedwatt": fedwatt_version, "python": platform.python_version()}
    return {
        "versions": versions | {package: _version(package) for package in PACKAGES},
        "commit": commit(),
        "engine": GPU_VERSION if on_gpu else VERSION,
        "sources": sources_digest(),
        "platform": platform.platform(),
        "processor": processor(),
        "compiler": compiler(),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "driver": driver() if on_gpu else "none",
        "cuda": torch.version.cuda or "none" if on_gpu else "none",
        "threads": torch.get_num_threads(),
        "deterministic": deterministic or not on_gpu,
    }


@cache
def commit() -> str:
    """Hash of the commit, with "+changes" where code differs from it; "unknown" outside of one."""
    if named := os.environ.get(COMMIT):
        return named
    root = PACKAGE.parent
    if not (root / ".git").exists():
        return UNKNOWN
    revision = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    changed = _output(
        ["git", "-C", str(root), "status", "--porcelain", "--", "*.py", "*.c", "*.cu"]
    )
    return revision + ("+changes" if revision != UNKNOWN and changed not in ("", UNKNOWN) else "")


@cache
def processor() -> str:
    """Return the processor's name and widest vectors: C and torch's products depend on them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(names, "") or platform.processor() or platform.machine()
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


@cache
def compiler() -> str:
    """Return the C compiler's version line; "none" without a compiler."""
    command = shlex.split(os.environ.get("CC", "cc"))
    text = _output([*command, "--version"]) if command else UNKNOWN
    return "none" if text in (UNKNOWN, "") else text.splitlines()[0]


@cache
def driver() -> str:
    """Return the version of the GPU's driver."""
    try:
        words = DRIVER.read_text(encoding="utf-8").splitlines()[0].split()
    except (OSError, IndexError):
        words = []
    numbers = [word for word in words if word[0].isdigit() and "." in word]
    if numbers:
        return numbers[0]
    versions = _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return versions.splitlines()[0] if versions else UNKNOWN


def _output(command: Sequence[str]) -> str:
    """Return the output of a program; "unknown" where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def describe_fleet(fleet: Fleet) -> dict[str, Any]:
    """Return the fleet in figures."""
    return {
        "source": fleet.source,
        "vehicles": len(fleet.clients),
        "held_out": [fleet.name(place) for place in np.flatnonzero(fleet.held_out).tolist()],
        "features": list(fleet.features),
        "windows": {split: fleet.windows(split) for split in ("train", "validation", "test")},
        "target": describe_target(fleet),
        "labels": {
            "measured": sum(not client.simulated for client in fleet.at_hand),
            "simulated": sum(client.simulated for client in fleet.at_hand),
        },
        "kinds": sorted({client.kind for client in fleet.at_hand}),
        "coverage": coverage(fleet),
    } | ({"reckoned_from": len(fleet.at_hand)} if fleet.is_lazy else {})


def coverage(fleet: Fleet) -> dict[str, Any]:
    """Return the amount of driving, too coarse to identify vehicles or places; empty if unknown.

    Of a fleet on demand it is reckoned from the vehicles at hand.

    hours, kilometres  of all trips, to two digits
    climb_m_per_km     how hilly roads are, to two digits, where climb is a feature
    ambient_c          outside temperature in nine of ten hours, outward to 5 °C
    """
    samples = []
    factor = len(fleet.clients) / max(len(fleet.at_hand), 1)
    for client in fleet.at_hand:
        scaler = client.scaler
        if scaler is None:
            return {}
        # A second a minute is enough for numbers of two digits.
        samples.append(client.series[::60].astype(np.float64) * scaler.scale + scaler.center)
    if not sum(map(len, samples)):
        return {}
    rows = np.concatenate(samples)
    names = list(fleet.features)
    summary: dict[str, Any] = {"hours": _two_digits(factor * len(rows) / 60)}
    if "speed" in names:
        metres = rows[:, names.index("speed")].sum()  # of the sampled seconds, as is climb
        summary["kilometres"] = _two_digits(factor * metres * 60 / 1000)
        if "ascent" in names and metres > 0:
            climb = rows[:, names.index("ascent")].sum()
            summary["climb_m_per_km"] = _two_digits(1000 * climb / metres)
    if "ambient" in names:
        low, high = np.quantile(rows[:, names.index("ambient")], (0.05, 0.95))
        summary["ambient_c"] = [5 * floor(low / 5), 5 * ceil(high / 5)]
    return summary


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def describe_target(fleet: Fleet) -> dict[str, Any]:
    """Return the target and the resolution of its labels: median over vehicles, in its unit."""
    target = fleet.settings.predicts
    grains = [client.label_grain for client in fleet.at_hand]
    description = {name: getattr(target, name) for name in ("name", "unit", "adds", "typical")}
    return description | {"meaning": target.described, "grain": median(grains)}


def fleet_partition(fleet: Fleet) -> str:
    """Hash of the vehicles' names and numbers of training windows."""
    return hash_of((c.name, c.held_out, len(c.ends["train"])) for c in fleet.at_hand)


def participation_hashes(clients: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return, for each seed, a hash of the participants of all rounds, equal for all methods of a
    run.
    """
    called: dict[int, list[tuple[int, str]]] = {}
    for row in clients:
        called.setdefault(row["seed"], []).append((row["round"], row["vehicle"]))
    return {str(seed): hash_of(sorted(pairs)) for seed, pairs in sorted(called.items())}


def hash_of(items: Iterable[object]) -> str:
    """Return a hexadecimal digest of the items' texts."""
    return sha256("\n".join(repr(item) for item in items).encode()).hexdigest()[:32]


Sources = dict[str, dict[str, str]]
"""Kind, in the plural → reference → hash."""

BUILT_IN = {
    "method": {*METHODS, *LOCAL_RULES, *SERVERS, *DEFENCES},
    "model": {*MODELS, OWN},
    "target": {*TARGETS},
    "feature": {*FEATURE_SETS, *FEATURES},
}


def sources_of(
    methods: Iterable[str],
    model: str,
    data: DataSettings,
    recorded: Mapping[str, Mapping[str, str]],
) -> Sources:
    """Return the code behind the names of a configuration: as it was `recorded`, or else as it is
    now.
    """
    sources: Sources = {}
    for kind, name in _names(methods, model, data):
        if name not in BUILT_IN[kind] and plugins.refers(name, kind):
            source = recorded.get(f"{kind}s", {}).get(name) or plugins.resolve(name, kind).source
            sources.setdefault(f"{kind}s", {})[name] = source
    return sources


def _names(methods: Iterable[str], model: str, data: DataSettings) -> Iterator[tuple[str, str]]:
    for method in methods:
        yield from (("method", part) for part in plugins.parts(method))
    yield "model", model
    yield "target", data.target
    yield from (("feature", word.strip()) for word in data.features.split(","))


def refuse_uninstalled(sources: Sources) -> None:
    """Raise if code is named by its place: vehicles take the entry points of installed packages."""
    for name in (name for names in sources.values() for name in names):
        if ":" in name:
            raise SettingError(
                f"A vehicle does not run '{name}' because a server names it. Install the package "
                "that has it on server and vehicles, with an entry point (docs/extending.md)."
            )


def changed_code(recorded: Any, present: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the references of each kind whose code differs from what config.toml recorded."""
    if not isinstance(recorded, Mapping) or not all(
        isinstance(names, Mapping) for names in recorded.values()
    ):
        raise SettingError("[plugins] is written by fedwatt; leave it as it was, or leave it out.")
    sources = {
        kind: [n for n, hashed in names.items() if recorded.get(kind, {}).get(n, hashed) != hashed]
        for kind, names in present.items()
    }
    return {kind: names for kind, names in sources.items() if names}


def changed_since(text: str, present: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return `changed_code` of what the text of a config.toml records."""
    return changed_code(parse_toml(text).get("plugins", {}), present)


def sentence(changed: Mapping[str, list[str]], since: str) -> str:
    """Return which code has changed since when."""
    names = " and ".join(f"'{name}'" for kind in changed.values() for name in kind)
    return f"The code of {names} has changed since {since}."
