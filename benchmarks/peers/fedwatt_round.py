"""The recipe in fedwatt, by name alone: a fleet, FedAvg, rounds."""

import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from task import rounds_asked, tell

from benchmarks.recipe import Recipe
from fedwatt import __version__
from fedwatt.federation import Federation
from fedwatt.methods import get

recipe = Recipe()
method = get("fedavg")
federation = Federation(recipe.fleet(), training=recipe.training, device="cpu")
state, _ = federation.start(method)
seconds = []
for _ in range(rounds_asked() + 1):
    begin = perf_counter()
    state, _ = federation.advance(method, state)
    seconds.append(perf_counter() - begin)
tell(f"fedwatt {__version__}", seconds)
