"""The lab and the cluster that these tests share."""

import pytest

from reproduction.lab import Lab
from tests.cluster import cluster as cluster
from tests.reproduction.small import TINY, Counting, cells_of_a_run


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Lab:
    made = Lab(TINY, tmp_path_factory.mktemp("lab"), device="cpu")
    made.run(cells_of_a_run(), Counting())
    return made
