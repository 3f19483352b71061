"""The SuperLink's process: what it sets for itself before it serves."""

import subprocess
import sys

import pytest

pytest.importorskip("flwr")

SETTINGS = """
import gc
from fedwatt.deploy.transport.superlink import collect_rarely
collect_rarely()
print(gc.get_threshold(), gc.get_freeze_count() > 10_000)
"""


def test_garbage_is_collected_rarely_and_without_what_is_there_at_the_start() -> None:
    done = subprocess.run([sys.executable, "-c", SETTINGS], capture_output=True, text=True)
    assert done.stdout == "(50000, 20, 100) True\n", done.stderr
