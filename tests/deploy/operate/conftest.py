"""One faulty fleet for all tests that look at it."""

import pytest

pytest.importorskip("flwr")

from tests.deploy.operate.faulty import FaultyFleet, faulty_run


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyFleet:
    return faulty_run(tmp_path_factory.mktemp("faulty"))
