"""References beside FedAvg for several sizes of the embedded fleet (design question only)."""

import json, sys, time
from multiprocessing import get_context
from pathlib import Path
import numpy as np, torch


def macro(rows):
    return float(np.mean([x["rmse"] for x in rows if x["stratum"] == "all"]))


def task(t):
    torch.set_num_threads(1)
    from fedwatt import Federation, Training, synthetic_fleet
    from fedwatt.references import reference_rows
    from fedwatt.personal import Personal, personalise

    seed, vehicles, trips, rate = t
    fleet = synthetic_fleet(vehicles=vehicles, seed=seed, trips=trips)
    fed = Federation(fleet, training=Training(rounds=40, rate=rate), seeds=(1, 2, 3))
    b = time.time()
    r = fed.train("fedavg")
    tf = time.time() - b
    out = {
        "seed": seed,
        "vehicles": vehicles,
        "trips": trips,
        "rate": rate,
        "t_fedavg": tf,
        "fedavg": macro(fed.vehicle_rows(r.state.weights)),
        "best": macro(fed.vehicle_rows(r.state.best_weights)),
    }
    p = personalise(fed, r.state.best_weights, Personal())
    out["personal"] = macro(fed.prediction_rows(p.test))
    b = time.time()
    rows = reference_rows(fed, 0.3)
    out["t_refs"] = time.time() - b
    for n in ("mean", "ridge", "network", "pooled"):
        out[n] = macro([x for x in rows if x["reference"] == n])
    return out


if __name__ == "__main__":
    tasks = [(s, v, tr, 0.01) for tr in (5, 6, 8, 12) for v in (20,) for s in (0, 1, 2, 3)]
    out = Path(sys.argv[1])
    out.mkdir(exist_ok=True, parents=True)
    found = []
    with get_context("spawn").Pool(16) as pool:
        for one in pool.imap_unordered(task, tasks):
            found.append(one)
            print(one, flush=True)
            (out / "firstrefs.json").write_text(json.dumps(found))
