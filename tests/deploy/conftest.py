"""Who the server is, which Flower's processes would have said."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def server_identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name, value in {"_run_id": 1, "_task_id": 1, "_node_id": 1}.items():
        monkeypatch.setattr(identity, name, value)
    yield
