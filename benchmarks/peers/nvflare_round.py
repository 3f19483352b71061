"""The recipe in NVFlare's simulator, by its FedAvg recipe; rounds are timed by its own log.

It keeps at most as many clients alive as it has threads, and starts a process for the next one.
"""

import os
import re
from datetime import datetime
from importlib.metadata import version as installed
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv
from task import PARTICIPANTS, VEHICLES, rounds_asked, tell
from torch_network import Network, version

if __name__ == "__main__":
    recipe = FedAvgRecipe(
        name="recipe",
        model=Network(),
        min_clients=PARTICIPANTS,
        num_rounds=rounds_asked() + 1,
        train_script=str(Path(__file__).with_name("nvflare_client.py")),
    )
    with TemporaryDirectory() as folder:
        threads = int(os.environ["OMP_NUM_THREADS"])
        recipe.execute(SimEnv(num_clients=VEHICLES, num_threads=threads, workspace_root=folder))
        texts = [path.read_text(errors="replace") for path in Path(folder).rglob("log.txt")]
    # What a round begins with is printed in a frame, whose lines have no time: the line before has.
    told = re.compile(
        r"^(\d\S+ \S+),(\d+) (?:.*\n(?!\d{4}-))*.*(?:Round \d+ started|Finished FedAvg)",
        re.MULTILINE,
    )
    marks = sorted({found.groups() for text in texts for found in told.finditer(text)})
    times = [datetime.fromisoformat(day).timestamp() + int(ms) / 1000 for day, ms in marks]
    tell(f"NVFlare {installed('nvflare')}, {version()}", [b - a for a, b in pairwise(times)])
