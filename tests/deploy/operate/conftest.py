"""One faulty fleet for all tests that look at it."""

from collections.abc import Iterator

import pytest

pytest.importorskip("flwr")

from tests.deploy.conftest import identify
from tests.operate.faulty import FaultyFleet, faulty_run


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyFleet]:
    with pytest.MonkeyPatch.context() as patch:
        identify(patch)
        yield faulty_run(tmp_path_factory.mktemp("faulty"))
