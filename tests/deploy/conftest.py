"""Who the server is, which Flower's processes would have said."""

from collections.abc import Iterator

import pytest


def identify(patch: pytest.MonkeyPatch) -> None:
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name, value in {"_run_id": 1, "_task_id": 1, "_node_id": 1}.items():
        patch.setattr(identity, name, value)


@pytest.fixture(autouse=True)
def server_identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    identify(monkeypatch)
    yield


@pytest.fixture(scope="module")
def lasting_identity() -> Iterator[None]:
    """For runs that several tests look at."""
    with pytest.MonkeyPatch.context() as patch:
        identify(patch)
        yield
