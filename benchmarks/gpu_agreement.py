"""The same trainings on the CPU and on a GPU: how far their models drift apart.

    python benchmarks/gpu_agreement.py [--models mlp,gru,lstm] [--out FILE]

Every method trains a ragged fleet (some vehicles finish their round long before others, batches are
short) for three rounds in float64 and in float32; the largest difference of a weight is given
relative to the largest weight. Float64 shows that both engines do the same; float32 shows what
rounding makes of it. GRU and LSTM train a smaller fleet with windows of 20 s. Results of models
that are not asked for stay in the file. Needs torch and numpy only.
"""

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fedwatt.federation import Availability, Federation, Training
from fedwatt.methods import METHODS, get
from fedwatt.synthetic import synthetic_fleet
from fedwatt.windows import DataSettings, Fleet

SOME = ("fedavg", "scaffold", "moon", "fo-ri-fedavg")
BACKBONES = {"mlp": tuple(METHODS), "gru": SOME, "lstm": SOME}
ROUNDS = 3


def fleet_for(model: str) -> Fleet:
    if model == "mlp":
        return synthetic_fleet(vehicles=8, settings=DataSettings(stride=20))
    return synthetic_fleet(vehicles=4, settings=DataSettings(window=20, stride=60))


def final(fleet: Fleet, method: str, model: str, device: str, precision: str) -> torch.Tensor:
    training = Training(
        rounds=ROUNDS, precision=precision, participation=0.6, evaluate_every=ROUNDS
    )
    # Computers of two speeds let FedEL leave its network early.
    availability = Availability(speeds=(1.0, 0.5))
    federation = Federation(
        fleet, model, training=training, availability=availability, seeds=(1, 2), device=device
    )
    # A probe of a recurrent model takes seconds; a few points of it show as much.
    small = {"directions": 2, "points": 10} if model != "mlp" and "ri-" in method else {}
    return federation.train(get(method, **small)).state.weights.double().cpu()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/performance_agreement.json"))
    parser.add_argument("--models", default="mlp,gru,lstm")
    options = parser.parse_args()
    asked = options.models.split(",")
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    rows = [
        row
        for row in known.get("largest_difference_over_largest_weight", [])
        if row["model"] not in asked
    ]
    for model in asked:
        fleet = fleet_for(model)
        windows = [len(client.ends["train"]) for client in fleet.clients]
        for method in BACKBONES[model]:
            row = {"model": model, "method": method, "windows": windows}
            for precision in ("float64", "float32"):
                cpu = final(fleet, method, model, "cpu", precision)
                begin = perf_counter()
                gpu = final(fleet, method, model, "cuda", precision)
                apart = float((cpu - gpu).abs().max() / cpu.abs().max())
                row[precision] = apart
                row[f"{precision}_gpu_s"] = perf_counter() - begin
            rows.append(row)
            print(row, flush=True)
    found = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rounds": ROUNDS,
        "largest_difference_over_largest_weight": rows,
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
