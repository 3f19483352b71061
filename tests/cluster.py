"""A Ray cluster of two machines, for tests of work that is spread over several."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from fedwatt.tuning.grid import connected


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two machines with one core each, both of them processes here."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedwatt[cluster]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    made.wait_for_nodes()
    with connected(made.address):
        yield made
    made.shutdown()


on_ray = pytest.mark.filterwarnings(
    # Ray leaves pipes of its own processes to be closed by the collector.
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
