"""Choice of the device that a federation trains on."""

import torch

from fedwatt.errors import SettingError


def resolve_device(name: str) -> torch.device:
    """Return the device called `name`; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise SettingError(f"device must be 'auto', 'cpu' or 'cuda', got '{name}'.")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("device 'cuda' was asked for, but PyTorch sees no GPU. Use 'cpu'.")
    return torch.device(name)
