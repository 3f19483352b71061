"""Methods that are not part of fedwatt on a real fleet: installed packages, and nothing else."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedwatt import plugins
from fedwatt.deploy.configuration import read_configuration
from fedwatt.errors import SettingError
from fedwatt.runs import execute, from_toml
from fedwatt.runs.config import to_toml
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet, weights
from tests.examples import EXAMPLES
from tests.runs.test_execute import Silent


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """SAM as an installed package that declares it."""
    about = tmp_path / "site" / "sharp-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sharp\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fedwatt.methods]\nsharp = sharp:sam\n")
    module = tmp_path / "site" / "sharp.py"
    module.write_text((EXAMPLES / "sam.py").read_text(encoding="utf-8"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield module
    sys.modules.pop("sharp", None)


def test_an_installed_method_on_a_fleet(package: Path, tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "fleet")
    text = config_text(fleet, "sharp", rounds=2)
    assert set(from_toml(text).plugins["methods"]) == {"sharp"}
    execute(from_toml(text), tmp_path / "simulated", Silent())
    real = deployed(text, loopback(fleet, tmp_path / "state"), tmp_path / "real")
    wanted, got = weights(tmp_path / "simulated"), weights(real)
    for name in wanted:
        # A stack of one rounds otherwise than a stack of four, in the last bits of float32.
        torch.testing.assert_close(got[name], wanted[name], rtol=0, atol=1e-6, msg=name)


def test_a_file_is_not_sent_for(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_trusted", set())
    text = config_text(tmp_path, f"{EXAMPLES}/sam.py:sam")
    with pytest.raises(SettingError, match="The server's configuration names code: the method"):
        read_configuration(text)
    plugins.trust(f"{EXAMPLES}/sam.py")  # the server's owner may, and still cannot send it
    with pytest.raises(SettingError, match=r"A vehicle does not run '.*sam.py:sam'"):
        deployed(text, None, tmp_path / "real")
    assert not (tmp_path / "real").exists()


def test_a_vehicle_with_another_version_says_so(package: Path, tmp_path: Path) -> None:
    text = to_toml(from_toml(config_text(tmp_path, "sharp")))
    assert read_configuration(text).methods[0].label == "sharp"
    sys.modules.pop("sharp")
    package.write_text(package.read_text(encoding="utf-8") + "# 1.1\n")
    read_configuration.cache_clear()
    with pytest.raises(SettingError, match="The vehicle's 'sharp' is not the server's: install"):
        read_configuration(text)
