"""docs/reproduction.md from the committed records.

    python benchmarks/reproduction_page.py [--records results/reproduction]

Reads records that `fedwatt reproduce ... --records DIR` wrote and writes the page with its figures.
Every number of the page comes from them, or from a formula. Takes seconds.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from fedwatt.studies.reproduction import Lab, scale_of
from fedwatt.studies.reproduction.markdown import write_markdown
from fedwatt.studies.reproduction.record import scale_of_records

REPOSITORY = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=REPOSITORY / "results" / "reproduction")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs" / "reproduction.md")
    arguments = parser.parse_args()
    scale = scale_of(scale_of_records(arguments.records))
    with TemporaryDirectory() as scratch:
        lab = Lab(scale, Path(scratch), records=arguments.records)
        print(write_markdown(lab, arguments.out))


if __name__ == "__main__":
    main()
