"""The scalar toy: ∇F_1 = w - 1 (n=1, H=2), ∇F_2 = 2(w + 2) (n=3, H=3), w_0 = 0.5, η = 0.1.

The vehicles pull in opposite directions and have unequal sizes and steps, so a lost sign, weight or
step shows. All values follow from the methods' equations by hand; float64, so 1e-9.
"""

import pytest
import torch
from pytest import approx

from fedwatt.methods import get
from tests.federation.toys import FULL, PARTIAL, toy_rounds

# λ r(I) = 0.1 · 0.1/(0.1 + 0.1) = 0.05, remembered by both vehicles and never probed again.
REMEMBERED = {
    "roughness": torch.tensor(0.1, dtype=torch.float64),
    "probed_in": torch.tensor(0),
}

GOLDEN = {
    "fedavg": (
        {},
        [-0.3912500000, -0.9139681250, -1.2205423053],
        [0.5950000000, -0.6713600000, -1.0782526400],
    ),
    "fedprox": (
        {"mu": 0.5},
        [-0.3440625000, -0.8563029297, -1.1671688405],
        [0.5925000000, -0.6065312500, -1.0155886523],
    ),
    "scaffold": (
        {},
        [-0.3912500000, -0.8679837500, -1.1498239194],
        [0.5950000000, -0.6423850000, -1.0134853400],
    ),
    "scaffold, uniform": (
        {"weighting": "uniform"},
        [-0.0625000000, -0.3730000000, -0.5761236250],
        [0.5950000000, -0.6134100000, -0.7344668100],
    ),
    "fednova": (
        {},
        [-0.3060937500, -0.7890950488, -1.0785033896],
        [0.5950000000, -0.6713600000, -1.0079580200],
    ),
    "fedadam": (
        {},
        [0.4901115664, 0.4767512597, 0.4611346091],
        [0.5090030640, 0.4998041706, 0.4872174200],
    ),
    "feddyn": (
        {},
        [-0.6173555556, -1.5258894035, -1.9991191576],
        [0.6410000000, -1.2315140133, -1.7600571224],
    ),
    "feddyn, uniform": (
        {"weighting": "uniform"},
        [-0.6125500000, -1.5065883149, -1.9591335733],
        [0.6417500000, -1.2242346025, -1.7398986317],
    ),
    "fedexp": (
        {"epsilon_relative": 0.0, "epsilon": 1e-3},
        [-0.3912500000, -0.9139681250, -1.3072777270],
        [0.5950000000, -0.6713600000, -1.0872687355],
    ),
    "fedcm": (
        {"alpha_cm": 0.3},
        [0.1897325000, -0.2826738286, -0.7958028568],
        [0.5295500000, 0.1302068402, -0.3708289277],
    ),
    "mimelite": (
        {"beta": 0.5},
        [0.0040625000, -0.6073622266, -1.1391217904],
        [0.5487500000, -0.1080862500, -0.7710006173],
    ),
    "sam": (
        {"rho_sam": 0.1},
        [-0.4231000000, -0.9644981500, -1.2820281650],
        [0.6140000000, -0.7104320000, -1.1330183680],
    ),
    "lesam": (
        {"rho_lesam": 0.1},
        [-0.3912500000, -0.9553181250, -1.2861440803],
        [0.5950000000, -0.6713600000, -1.1196026400],
    ),
    "sam+fedcm": (
        {"rho_sam": 0.1, "alpha_cm": 0.3},
        [0.1785038000, -0.3109990951, -0.8426984599],
        [0.5354600000, 0.1240146082, -0.3947423961],
    ),
    "ri-fedavg": (
        {},
        [-0.3864468750, -0.9081840203, -1.2152635040],
        [0.5947500000, -0.6647546238, -1.0719879598],
    ),
    "fo-fedavg": (
        {},
        [-0.3583184732, -0.8519186647, -1.1431414579],
        [0.5769206628, -0.6332801506, -1.0133046049],
    ),
    "fo-ri-fedavg": (
        {},
        [-0.3536769579, -0.8465711885, -1.1383615004],
        [0.5767711035, -0.6268701219, -1.0074748301],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_three_rounds_of_the_toy(name: str) -> None:
    settings, full, partial = GOLDEN[name]
    method = get(name.partition(",")[0], **settings)
    client_state = REMEMBERED if "ri" in name.split("-") else None
    assert toy_rounds(method, FULL, client_state) == approx(full, abs=1e-9)
    assert toy_rounds(method, PARTIAL, client_state) == approx(partial, abs=1e-9)
