"""Settings of the windows that are made from telemetry."""

import math
from dataclasses import dataclass, replace

from fedwatt.errors import check
from fedwatt.windows.features import feature_names
from fedwatt.windows.scaling import SCALINGS
from fedwatt.windows.targets import Target, get_target, refuse_leaks

LABEL_SCALINGS = ("vehicle", "fleet")


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Settings of the windows that are made from telemetry.

    `features` is a feature set ("base", "physics", "elevation"), single features, or several of
    them separated by commas. `target` is what a window predicts, one of `fedwatt.windows.targets`,
    and with a `horizon` the target of that many samples after it. `window` and the strides are in
    samples: `stride` between training windows, `evaluation_stride` between validation and test
    windows. With `label_scaling` "vehicle" a label is centred and scaled like a feature, from
    training windows;
    with "fleet" it is divided by `label_scale_wh`, in the target's unit. `split` are the shares of
    training, validation and test trips; `held_out` is the number of vehicles that never train. A
    vehicle may replace its features by its own `components` principal ones, or silence all but its
    own `selected` best (0 leaves them alone). With `align` its motion is delayed by the time
    offset between motion and power that its training trips show (`fedwatt.windows.time_offset`).
    """

    features: str = "base"
    target: str = "energy"
    horizon: int = 0
    window: int = 60
    stride: int = 1
    evaluation_stride: int = 10
    scaling: str = "zscore"
    label_scaling: str = "vehicle"
    label_scale_wh: float = 100.0
    split: tuple[float, float, float] = (0.7, 0.1, 0.2)
    split_seed: int = 0
    held_out: int = 0
    components: int = 0
    selected: int = 0
    align: bool = False

    def __post_init__(self) -> None:
        check(self, "horizon", self.horizon >= 0, "at least 0 samples (0: the target's own)")
        refuse_leaks(self.predicts, feature_names(self.features))
        most = len(feature_names(self.features))
        for name in ("components", "selected"):
            allowed = f"from 0 (off) to the {most} features of '{self.features}'"
            check(self, name, 0 <= getattr(self, name) <= most, allowed)
        alone = not (self.components and self.selected)
        check(self, "selected", alone, "0 when components is not. Use one of them")
        for name in ("window", "stride", "evaluation_stride"):
            check(self, name, getattr(self, name) >= 1, "at least 1 sample")
        for name, choices in (("scaling", SCALINGS), ("label_scaling", LABEL_SCALINGS)):
            check(self, name, getattr(self, name) in choices, f"one of {', '.join(choices)}")
        positive = math.isfinite(self.label_scale_wh) and self.label_scale_wh > 0
        check(self, "label_scale_wh", positive, "a positive number of Wh")
        object.__setattr__(self, "split", tuple(self.split))
        shares = len(self.split) == 3 and all(share > 0 for share in self.split)
        allowed = "three positive shares that add up to 1, such as (0.7, 0.1, 0.2)"
        check(self, "split", shares and math.isclose(sum(self.split), 1, abs_tol=1e-9), allowed)
        check(self, "held_out", self.held_out >= 0, "at least 0 vehicles")

    @property
    def predicts(self) -> Target:
        """The target of a window."""
        target = get_target(self.target)
        return replace(target, horizon=self.horizon) if self.horizon else target

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a client's series."""
        if self.components:
            return tuple(f"component {number + 1}" for number in range(self.components))
        return feature_names(self.features)
