"""The method that fedwatt recommends, by the committed records of the method comparison.

`fedwatt compare --check` computes it again from results/comparison.jsonl by the rule of
docs/which-method.md. A test compares all places that name it: README, that page, the commands that
an import prints, the default configuration of a run, and what a deployed vehicle accepts.
"""

from typing import Final

RECOMMENDED: Final = "fedavg"
