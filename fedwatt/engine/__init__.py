"""Training of a stack of vehicles: one `Job`, one `train(job)`, several engines.

`plain` is the engine to read; `cpu` and `gpu` must do what it does, to rounding.
"""

from fedwatt.engine.job import Job
from fedwatt.engine.together import train

__all__ = ["Job", "train"]
