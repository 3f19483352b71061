"""Look for driving-style clusters among the vehicles of a finished run.

    python -m examples.driving_styles RUN [--method METHOD]

Prints the verdict and the clusters, and writes RUN/styles.json.
"""

import argparse
import json
from pathlib import Path

from examples.driving_styles import find_styles
from fedwatt import load


def main() -> None:
    """Load the run, look for clusters and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--method", help="method whose models are used; default: the run's first")
    parser.add_argument("--max-clusters", type=int, default=6)
    parser.add_argument("--min-vehicles", type=int, default=3, help="vehicles of a cluster")
    options = parser.parse_args()
    trained = load(options.run, method=options.method)
    styles = find_styles(
        trained.federation,
        trained.state.final_weights,
        trained.label,
        max_clusters=options.max_clusters,
        min_vehicles=options.min_vehicles,
    )
    print(styles.sentence)
    for cluster in range(styles.clusters):
        profile = ", ".join(
            f"{name} {values[cluster]:.2f}" for name, values in styles.profile.items()
        )
        print(f"cluster {cluster + 1}: {styles.sizes[cluster]} vehicles; {profile}")
    file = options.run / "styles.json"
    file.write_text(json.dumps(styles.to_json(), indent=1) + "\n", encoding="utf-8")
    print(f"Vehicles: {file}")


if __name__ == "__main__":
    main()
