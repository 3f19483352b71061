"""Memory of a vehicle's process in a day of driving over hills."""

import subprocess
import sys
from pathlib import Path
from typing import Any

SECONDS = 86_400
DAY = """
import sys
from pathlib import Path
from fedwatt.edge.predictor import EnergyPredictor
def memory_mb(what):
    return int(Path("/proc/self/status").read_text().partition(what + ":")[2].split()[0]) / 1024
predictor = EnergyPredictor(sys.argv[1])
made = 0
for second in range(int(sys.argv[2])):
    sample = {"speed_mps": second % 20 if second % 900 < 600 else 0.0, "ambient_c": 12.0}
    sample |= {"latitude_deg": 42.28 + abs(second % 1000 - 500) / 5e4, "longitude_deg": -83.74}
    made += len(predictor.push(float(second), sample))
    if second == 3600:
        early_mb = memory_mb("VmRSS")
assert made > 86_000 and not {"torch", "polars", "pyarrow", "scipy"} & set(sys.modules)
print(memory_mb("VmHWM"), memory_mb("VmRSS") - early_mb)
"""


def day_of_driving(model: Path) -> dict[str, Any]:
    """Peak memory (MB) of a process that predicts a day, and its growth after the first hour."""
    command = [sys.executable, "-c", DAY, str(model), str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, grown = map(float, done.stdout.split())
    return {"peak_mb": peak, "grown_mb": grown, "seconds": SECONDS}
