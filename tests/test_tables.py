"""Declared columns are filled, and files keep their columns."""

from math import isnan, nan

import pytest

from fedwatt.errors import SettingError
from fedwatt.federation.records import (
    UNEVALUATED,
    Clients,
    Evaluation,
    error_columns,
    evaluation_columns,
)
from fedwatt.metrics import METRICS, ErrorSums
from fedwatt.tables import (
    ERRORS,
    EVALUATION,
    OUTCOME,
    PROBED,
    ROUGHNESS,
    TRAINING,
    Column,
    declared,
    recorded,
)

ERROR_COLUMNS = ("rmse", "mae", "mape", "wmape", "near_zero")
"""Metrics of earlier runs; others may be added."""
FILES = {
    "rounds": {
        str: "method",
        int: "seed round available participants replies lost rejected steps best_round",
        float: "learning_rate drift_mean drift_cv agreement roughness_mean pearson spearman "
        f"validation_rmse {' '.join(f'test_{name}' for name in METRICS)} test_rmse_macro "
        "test_rmse_weighted test_rmse_margin "
        "held_out_rmse personal_validation_rmse personal_rmse personal_rmse_macro "
        "personal_held_out_rmse best_validation_rmse best_test_rmse "
        "final_validation_rmse final_test_rmse epsilon clock staleness_mean",
        bool: "evaluated diverged",
    },
    "clients": {
        str: "method vehicle",
        int: "seed round windows steps",
        float: "drift length_ratio length_z roughness pull kappa runtime staleness",
        bool: "replied rejected flagged probed",
    },
    "vehicles": {
        str: "method model vehicle stratum",
        int: "seed windows",
        float: " ".join(METRICS),
        bool: "held_out",
    },
    "baselines": {
        str: "reference vehicle stratum",
        int: "seed windows",
        float: " ".join(METRICS),
        bool: "held_out",
    },
    "timing": {
        str: "method",
        int: "round seeds",
        float: "training preconditioner probe spectral aggregation evaluation total",
    },
}


@pytest.mark.parametrize("name", FILES)
def test_files_keep_the_columns_of_earlier_runs(name: str) -> None:
    expected = [(column, kind) for kind, names in FILES[name].items() for column in names.split()]
    assert [(column.name, column.kind) for column in declared(name).columns] == expected


def test_errors_keep_the_metrics_of_earlier_runs() -> None:
    assert set(ERROR_COLUMNS) <= METRICS.keys()


def test_functions_fill_what_they_are_declared_to() -> None:
    sums = ErrorSums.of([13.0], [10.0])
    model = Evaluation([sums], [sums])
    errors = evaluation_columns(model, model, [5], [False])
    nobody = Clients({column.name: [] for column in declared("clients").columns}, [])
    training = nobody.training_columns(0, available=3, learning_rate=0.1, clock=nan, agreement=nan)
    for result, columns in (
        (errors, declared("rounds").filled_by(EVALUATION)),
        (UNEVALUATED, declared("rounds").filled_by(EVALUATION)),
        (training, declared("rounds").filled_by(TRAINING)),
        (error_columns(sums), declared("vehicles").filled_by(ERRORS)),
    ):
        assert result.keys() == {column.name for column in columns}
        assert all(type(result[column.name]) is column.kind for column in columns)
    assert {column.name for column in declared("clients").filled_by(OUTCOME)} == {
        "steps",
        "replied",
        "rejected",
    }


def test_a_number_becomes_what_its_column_holds() -> None:
    assert Column("tries", int, "tries").value(3.0) == 3
    assert PROBED.value(1.0) is True and PROBED.value(nan) is False
    assert ROUGHNESS.value(0.25) == 0.25 and isnan(ROUGHNESS.value(nan))


def test_a_column_is_of_one_of_four_types() -> None:
    with pytest.raises(SettingError, match="str, int, float or bool"):
        Column("weights", list, "all of them")


def test_what_a_rule_records_besides_comes_last() -> None:
    temper = Column("temper", float, "how it felt")
    assert [column.name for column in recorded([ROUGHNESS, temper])] == [
        "drift",
        "roughness",
        "pull",
        "kappa",
        "runtime",
        "staleness",
        "probed",
        "temper",
    ]
