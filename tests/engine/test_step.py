"""Rules that ask for gradients elsewhere: the examples, worked out by hand and on all engines."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedwatt.engine import cpu, plain
from fedwatt.errors import SettingError
from fedwatt.federation import Availability, Federation, Training
from fedwatt.methods import LocalRule, Method, Proximal, Rows, StepLoss, get
from fedwatt.methods.contrastive import Contrastive
from fedwatt.metrics import Stopwatch
from tests.engine.test_gpu import on_a_gpu
from tests.engine.test_plain import job
from tests.examples import EXAMPLES
from tests.federation.toys import random_fleet

SAM = f"{EXAMPLES}/sam.py:sam"
EXTRAGRADIENT = f"{EXAMPLES}/extragradient.py:Extragradient"
LINE_SEARCH = f"{EXAMPLES}/line_search.py:LineSearch"


@dataclass(frozen=True, kw_only=True)
class Looks(LocalRule):
    """Doubles a vehicle's gradient if its first number is above 0, which is read off the device."""

    def explore(self, loss: StepLoss, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        gradients = loss.gradient(weights)
        return torch.stack([2 * result if result[0].item() > 0 else result for result in gradients])


def moves(*rules: LocalRule) -> list[float]:
    """Δ of the two vehicles of `job`, the same by the plain engine and the one for a processor."""
    outcome = plain.train(job(*rules))
    torch.testing.assert_close(cpu.train(job(*rules), Stopwatch()), outcome, rtol=0, atol=1e-14)
    return outcome[:, 0].tolist()


def test_sam() -> None:
    # With D = 1 the gradient is taken at w ± ρ. Second vehicle, 2(w + 2): 0.5 - 0.1·5.2 = -0.02,
    # -0.02 - 0.1·4.16 = -0.436. First, w - 1 at 0.4: 0.5 + 0.06.
    assert moves(*get(SAM, rho=0.1).local) == pytest.approx([-0.936, 0.06], abs=1e-14)


def test_extragradient() -> None:
    # Second vehicle: at 0 the gradient is 4, so 0.1; at -0.32 it is 3.36, so -0.236.
    # First: at 0.55 it is -0.45.
    assert moves(*get(EXTRAGRADIENT).local) == pytest.approx([-0.736, 0.045], abs=1e-14)


def test_line_search() -> None:
    # Second vehicle, loss (w + 2)². With c = 0.85 whole steps are good enough: the first must lower
    # 6.25 by 2.125 and lowers it by 2.25, the second 4 by 1.36 and lowers it by 1.44.
    assert moves(*get(LINE_SEARCH, c=0.85).local) == pytest.approx([-0.9, 0.05], abs=1e-14)
    # With c = 0.94 they are not, and are halved once: 0.5 - 0.25, then 0.25 - 0.225. The step of
    # the first vehicle, loss (w - 1)²/2, lowers 0.125 by 0.02375 and must lower it by 0.0235.
    moved = moves(*get(LINE_SEARCH, c=0.94, halvings=1).local)
    assert moved == pytest.approx([-0.475, 0.05], abs=1e-14)


def test_a_pull_acts_at_the_weights_of_the_step() -> None:
    # Second vehicle: -0.02 as above, then (4.16 + 0.5·(-0.02 - 0.5)) = 3.9.
    rules = (*get(SAM, rho=0.1).local, Proximal(mu=0.5))
    assert moves(*rules) == pytest.approx([-0.02 - 0.39 - 0.5, 0.06], abs=1e-14)


def test_rules_that_explore_nest() -> None:
    # First vehicle: SAM's gradient is -0.6 at 0.5, so the point ahead is 0.56, where it is -0.54.
    _, first = moves(*get(SAM, rho=0.1).local, *get(EXTRAGRADIENT).local)
    assert first == pytest.approx(0.054, abs=1e-14)


def test_fednova_refuses_them() -> None:
    with pytest.raises(SettingError, match="SharpnessAware is not linear in the gradients"):
        get(f"{SAM}@nova")


def _trained(method: Method, device: str, precision: str = "float64") -> Tensor:
    federation = Federation(
        random_fleet([40, 9, 33, 70]),
        training=Training(rounds=2, participation=0.75, batch=8, precision=precision),
        availability=Availability(speeds=(1.0, 0.5)),
        seeds=(1, 2),
        device=device,
    )
    return federation.train(method).state.weights.cpu()


METHODS = {
    "sam": get(SAM),
    "sam and a pull": get(f"{SAM}+fo-ri-fedavg"),
    "extragradient": get(EXTRAGRADIENT),
    "line search": get(LINE_SEARCH),
    "sam of another loss": Method("both", (Contrastive(), *get(SAM).local)),
    "looks": Method("looks", (Looks(),)),
}


@pytest.mark.parametrize("name", METHODS)
def test_both_precisions_agree(name: str) -> None:
    # Kernels in float32 against plain autograd in float64, over two rounds of small steps.
    result = _trained(METHODS[name], "cpu", "float32").double()
    torch.testing.assert_close(result, _trained(METHODS[name], "cpu"), rtol=0, atol=1e-4)


@on_a_gpu
@pytest.mark.parametrize("name", METHODS)
def test_every_one_on_both_devices(name: str) -> None:
    result = _trained(METHODS[name], "cuda")
    torch.testing.assert_close(result, _trained(METHODS[name], "cpu"), rtol=0, atol=1e-9)
