"""How much of a vehicle's computer training may take."""

import os
import resource
from dataclasses import dataclass

from fedwatt.errors import check


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of the vehicle's process."""

    threads: int = 1  # threads for arithmetic
    memory_mb: int = 0  # megabytes that the process may allocate (RLIMIT_DATA); 0: no bound
    nice: int = 10  # how far behind other processes it stands, 0 to 19

    def __post_init__(self) -> None:
        check(self, "threads", self.threads >= 1, "at least 1")
        least = self.memory_mb == 0 or self.memory_mb >= 256
        check(self, "memory_mb", least, "0 (no bound) or at least 256")
        check(self, "nice", 0 <= self.nice <= 19, "from 0 to 19")

    def apply(self) -> None:
        """Bind this process for good."""
        import torch

        torch.set_num_threads(self.threads)
        if self.nice > os.nice(0):
            os.nice(self.nice - os.nice(0))
        if self.memory_mb:
            bound = self.memory_mb * 1024 * 1024
            resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
