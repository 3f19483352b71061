"""C that is generated from torch functions does what they do."""

import ctypes
from math import inf, nan, pi

import pytest
import torch
from torch import Tensor

from fedwatt.engine.kernels.c_compiler import compiled
from fedwatt.engine.kernels.fused_step import PRELUDE
from fedwatt.engine.kernels.trace import COLUMNS, ROWS, Untraceable, statements

RUN = """
void run(const double *n_of_row, const float *x_of, const float *y_of, float *out,
         int64_t rows, int64_t columns) {{
    for (int64_t row = 0; row < rows; row++) {{
        const double n = n_of_row[row];
        {numbers}
        for (int64_t i = row * columns; i < (row + 1) * columns; i++) {{
            const float x = x_of[i], y = y_of[i];
            {weights}
            out[i] = {result};
        }}
    }}
}}
"""
X = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 1e-30, 7e4, inf, -inf, nan, 0.5])
Y = torch.tensor([1.0, 2.0, 0.0, -3.0, 0.7, 0.2, 1.0, 3.0, 1.0, 2.0, 0.0, nan])
N = torch.tensor([0.4, -1.5], dtype=torch.float64)


def in_torch_and_in_c(function) -> tuple[Tensor, Tensor]:
    inputs = {
        "x": torch.rand(ROWS, COLUMNS),
        "y": torch.rand(ROWS, COLUMNS),
        "n": torch.rand(ROWS, 1),
    }
    traced = statements(function, inputs)
    lines = {name: "\n".join(getattr(traced, name)) for name in ("numbers", "weights")}
    library = compiled(PRELUDE.read_text() + RUN.format(**lines, result=traced.result))
    if library is None:
        pytest.skip("no C compiler")
    x = X.expand(2, -1).contiguous()
    y = Y.expand(2, -1).contiguous()
    out = torch.empty_like(x)
    library.run.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 2
    library.run(N.data_ptr(), x.data_ptr(), y.data_ptr(), out.data_ptr(), *x.shape)
    return function({"x": x, "y": y, "n": N[:, None].float()}), out


FUNCTIONS = {
    "sums": lambda of: of["x"] + 2 * of["y"] - of["n"],
    "alpha": lambda of: torch.sub(torch.add(of["x"], of["y"], alpha=3), of["n"], alpha=0.5),
    "reversed": lambda of: 1 - of["x"],
    "products": lambda of: of["x"] * of["y"] / 3 * of["n"],
    "quotients": lambda of: of["x"] / (of["y"] * of["y"] + 1),
    "addcmul": lambda of: torch.addcmul(of["x"], of["y"], of["n"], value=-2),
    "lerp": lambda of: torch.lerp(of["x"], of["y"], torch.full_like(of["x"], 0.25)),
    "bounds": lambda of: of["x"].clamp(-1, 2) + of["y"].clamp(min=0.5),
    "bounds of numbers": lambda of: of["x"].clamp(-of["n"].abs(), of["n"].abs()),
    "extremes": lambda of: torch.maximum(of["x"], of["y"]) + torch.minimum(of["x"], of["n"]),
    "choice": lambda of: torch.where(of["x"] > of["y"], of["x"], 0.0),
    "both": lambda of: torch.where((of["x"] > 0) & ~(of["y"] >= 1), 1.0, of["n"]),
    "sign": lambda of: of["x"].sign() + of["n"].sign(),
    "size": lambda of: of["x"].abs() - of["n"].abs(),
    "exponential": lambda of: (of["y"] * of["n"]).exp(),
    "logarithm": lambda of: of["x"].log(),
    "root": lambda of: of["x"].abs().sqrt(),
    "power": lambda of: of["x"].abs() ** of["n"],
    "square": lambda of: of["x"] ** 2,
    "cube": lambda of: of["x"] ** 3,
    "in place": lambda of: of["x"].abs().add_(1).log_().mul_(of["n"]).exp_(),
    "sigmoid": lambda of: torch.sigmoid(of["y"]) + torch.tanh(of["y"]),
    "cast": lambda of: of["x"] * of["n"].double().to(of["x"].dtype),
    "row": lambda of: of["x"] * of["n"][:, 0][:, None],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_c_does_what_torch_does(name: str) -> None:
    expected, result = in_torch_and_in_c(FUNCTIONS[name])
    # Roundings, and polynomials that are good to some 3e-7; what is not finite is the same.
    torch.testing.assert_close(result, expected, rtol=2e-6, atol=1e-6, equal_nan=True)


def test_a_constant_that_a_function_makes_is_written_out() -> None:
    expected, result = in_torch_and_in_c(lambda of: of["x"] * pi)
    torch.testing.assert_close(result, expected, rtol=1e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda of: of["x"] / of["x"].norm(dim=-1, keepdim=True), "norm"),
        (lambda of: of["x"] - of["x"].mean(dim=-1, keepdim=True), "mean"),
        (lambda of: of["x"] if of["n"][0, 0] > 0 else of["y"], "part of a tensor"),
        (lambda of: of["x"].double() + 1, "float64"),
        (lambda of: of["x"] + torch.arange(COLUMNS), "arange|shape"),
        (lambda of: of["x"].cumsum(-1), "cumsum"),
        (lambda of: of["x"] + of["z"], "z"),
        (lambda of: of["x"] / of["x"].size(-1), "reads how many weights"),
        (lambda of: of["x"] * max(of["n"].tolist())[0], "reads values out of a tensor"),
        (lambda of: of["x"] * (of["y"] > 0).int() + of["x"].bool(), "makes torch.bool of torch.fl"),
    ],
    ids=[
        "norm",
        "mean",
        "decision",
        "float64",
        "position",
        "cumsum",
        "unknown",
        "size",
        "list",
        "bool",
    ],
)
def test_what_is_not_told_of_single_weights_is_refused(function, why: str) -> None:
    inputs = {"x": torch.ones(ROWS, COLUMNS), "y": torch.ones(ROWS, COLUMNS)}
    inputs["n"] = torch.ones(ROWS, 1)
    with pytest.raises(Untraceable, match=why):
        statements(function, inputs)


def test_sums_over_weights_are_numbers_where_they_are_asked_for() -> None:
    inputs = {"x": torch.ones(ROWS, COLUMNS), "n": torch.ones(ROWS, 1)}
    traced = statements(lambda of: of["x"] / of["x"].norm(dim=-1, keepdim=True), inputs, sums=True)
    assert "t0_lanes[i - begin] += (double)x * (double)x;" in traced.numbers[0]
    assert traced.numbers[1:] == ("const double t1 = square_root(t0);",)
    assert traced.weights == ("const float t2 = x * (float)(1 / t1);",)
    with pytest.raises(Untraceable, match="order 2 alone"):
        statements(lambda of: of["x"] / of["x"].norm(p=1, dim=-1, keepdim=True), inputs, sums=True)
    with pytest.raises(Untraceable, match="sum"):  # over all vehicles
        statements(lambda of: of["x"] / of["x"].sum(), inputs, sums=True)


def test_a_view_of_what_was_changed_in_place_holds_what_the_memory_holds() -> None:
    def function(of: dict[str, Tensor]) -> Tensor:
        copy = of["x"].clone()
        view = copy.view_as(copy)
        copy.mul_(2)
        return view + 1

    expected, result = in_torch_and_in_c(function)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert result[0, 2] == 3  # 2·1 + 1
