"""Requests per second of `fedwatt serve` for routes of 10 km: results/serve.json, docs/serve.md.

    python -m benchmarks.edge_serve             measure on a quiet machine, write
    python -m benchmarks.edge_serve --tables    write the sentence of what was measured

The service runs as users start it, in a process of its own; `CLIENTS` connections send a route of
101 points and its state of charge, one request after the other.
"""

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import processor
from benchmarks.marked import write_blocks
from fedwatt.files import write_text

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "serve.json"
PAGE = ROOT / "docs" / "serve.md"
CLIENTS = 4
SECONDS = 20.0
STEP_DEG = 0.1 / 111.195
"""Latitude of 100 m."""
BODY = json.dumps(
    {
        "points": [{"latitude_deg": 48 + i * STEP_DEG, "longitude_deg": 11.0} for i in range(101)],
        "temperature_c": 5.0,
        "soc_percent": 60.0,
    }
)


def started(port: int) -> subprocess.Popen[bytes]:
    """Return the service, once it answers."""
    command = [sys.executable, "-m", "fedwatt", "serve", "leaf-24", "--port", str(port)]
    service = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    for _ in range(200):
        try:
            requested(http.client.HTTPConnection("127.0.0.1", port))
            return service
        except OSError:
            time.sleep(0.1)
    service.terminate()
    sys.exit("The service did not start.")


def requested(connection: http.client.HTTPConnection) -> dict[str, Any]:
    """Return the answer to one request."""
    connection.request("POST", "/route", BODY, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    answer: dict[str, Any] = json.loads(reply.read())
    if reply.status != 200:
        sys.exit(f"The service answered {reply.status}: {answer}")
    return answer


def times_of(port: int, end: float) -> list[float]:
    """Return the seconds that each request of one connection took."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times = []
    while (begin := time.perf_counter()) < end:
        requested(connection)
        times.append(time.perf_counter() - begin)
    return times


def measured() -> dict[str, Any]:
    """Return the rate and the times of requests."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    service = started(port)
    try:
        kilometres = requested(http.client.HTTPConnection("127.0.0.1", port))["distance_km"]
        end = time.perf_counter() + SECONDS
        with ThreadPoolExecutor(CLIENTS) as clients:
            parts = list(clients.map(times_of, [port] * CLIENTS, [end] * CLIENTS))
    finally:
        service.terminate()
        service.wait()
    times = np.concatenate(parts)
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "kilometres": kilometres,
        "clients": CLIENTS,
        "requests": len(times),
        "per_second": round(len(times) / SECONDS, 1),
        "median_ms": round(1000 * float(np.median(times)), 1),
        "p95_ms": round(1000 * float(np.percentile(times, 95)), 1),
    }


def tables(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the Markdown of each block of the page."""
    return {
        "rate": f"On {record['cores']} cores the service answers {record['per_second']:.0f} routes "
        f"of {record['kilometres']:.0f} km per second, over {record['clients']} connections "
        f"(median {record['median_ms']:.0f} ms, 95 % within {record['p95_ms']:.0f} ms; "
        "`benchmarks/edge_serve.py`)."
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", action="store_true")
    if not parser.parse_args().tables:
        write_text(RESULTS, json.dumps(measured(), indent=1) + "\n")
    write_blocks(PAGE, tables(json.loads(RESULTS.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
