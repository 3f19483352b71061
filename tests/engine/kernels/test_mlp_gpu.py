"""Parts of the kernel of whole rounds; tests/engine/test_gpu.py runs it on a GPU."""

from dataclasses import dataclass, replace

import pytest
from torch import Tensor

from fedwatt.engine.job import Job
from fedwatt.engine.kernels.fused_step import traced_step
from fedwatt.engine.kernels.mlp_gpu import KernelSizes, columns, gpu_round, movers, warps_for
from fedwatt.engine.kernels.whole_round import c_slope
from fedwatt.federation import Federation, Training
from fedwatt.methods import get
from fedwatt.methods.rule import LocalRule, Rows
from fedwatt.metrics import Stopwatch
from tests.federation.toys import random_fleet


def job_of(name: str) -> Job:
    federation = Federation(random_fleet([40, 9]), training=Training(batch=8), device="cpu")
    method = get(name)
    state, _ = federation.start(method)
    fleet = federation.simulated
    calls = fleet.calls(state, fleet.present(state))
    return fleet.begin(method, state, calls, Stopwatch()).job


@pytest.mark.parametrize(
    ("name", "read", "warps"),
    [
        ("fedavg", {}, 16),
        ("fedprox", {"anchor": "anchor"}, 16),
        ("fo-fedavg", {"previous": "anchor"}, 16),
        ("fo-ri-fedavg", {"previous": "anchor", "anchor": "anchor"}, 8),
    ],
)
def test_a_step_reads_what_its_rules_name(name: str, read: dict[str, str], warps: int) -> None:
    step = traced_step(job_of(name))
    assert columns(step) == read
    assert warps_for(step) == warps


@dataclass(frozen=True, kw_only=True)
class Sevenfold(LocalRule):
    """A formula that no other rule has."""

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """7 g + w³."""
        return 7 * gradient + weights * weights * weights


def test_a_rule_of_its_own_is_in_the_source() -> None:
    job = replace(job_of("fedavg"), rules=(Sevenfold(),), plans=({},))
    source = movers(traced_step(job))
    assert "= 7.0f * gradient;" in source or "= gradient * 7.0f;" in source
    assert source.count("= weight * weight;") == 2  # in the first step and in later ones


def test_numbers_of_a_row_are_rounded_once() -> None:
    """No weight's step converts a double, which a GPU does at a fraction of its speed."""
    source = movers(traced_step(job_of("fo-ri-fedavg")))
    of_weights = source.split("const Beside &of) const {")[1:]
    assert len(of_weights) == 2
    assert not any("(float)" in part.split("return")[0] for part in of_weights)


def test_the_paper_s_network_fits_a_multiprocessor() -> None:
    sizes = KernelSizes(inputs=480, features=8, units1=64, units2=32, batch=64, warps=16)
    # Windows 64 x 488, four parts of 64 x 72, hidden and error 64 x 40 each, a matrix 64 x 40 and
    # one of 32, biases of 64, 32 and 1, an error for each of 64 windows.
    assert sizes.shared_numbers == 31232 + 18432 + 2 * 2560 + 2560 + 32 + 64 + 32 + 1 + 64
    assert 4 * sizes.shared_numbers <= 227 * 1024  # what a block may have on Hopper
    step = traced_step(job_of("fo-fedavg"))
    assert sizes.scratch(step) == 480 * 64 + 64 * 33 + 2 * 32 + 1 + 3  # a multiple of four


def test_a_source_has_its_sizes_rules_and_loss() -> None:
    job = job_of("scaffold")
    step = traced_step(job)
    slope = c_slope(job.loss)
    assert slope is not None
    sizes = KernelSizes(inputs=32, features=8, units1=64, units2=32, batch=8, warps=16)
    source = sizes.source(step, slope, 3)
    assert "#define INPUTS 32\n" in source
    assert source.index("loss_slope") < source.index("struct Later") < source.index("train_round(")
    assert f"const float *{next(iter(columns(step)))}" in source  # SCAFFOLD's correction


def test_what_is_not_on_a_gpu_is_declined() -> None:
    assert gpu_round(job_of("fedavg")) is None
