"""scikit-learn's own checks of an estimator; what cannot pass is in one table of the docs."""

import csv
import fnmatch
from pathlib import Path

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from fcforge.estimator import ForgeClassifier

# scikit-learn's checks fit on clouds of 2 to 30 arbitrary columns, which an FC classifier refuses.
# With features="any" the same code accepts them, and then the checks apply.
TABLE = Path(__file__).parents[2] / "docs" / "estimator_checks.csv"
ROWS = list(csv.DictReader(TABLE.read_text().splitlines()))
NOT_FC = {r["check"]: r["why it cannot pass"] for r in ROWS if r["settings"] == "default"}
(NETWORKS,) = (r["check"] for r in ROWS if r["settings"] == "networks")
EXACT = "check_sample_weight_equivalence_on_dense_data"  # but for the last bit of float32


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [ForgeClassifier(features="any")], expected_failed_checks=lambda e: {EXACT: NOT_FC[EXACT]}
)
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [ForgeClassifier("finetune", "linear", epochs=30, lr=1e-2, features="any")]
)
def test_checks_of_a_network(estimator, check) -> None:
    if fnmatch.fnmatch(check.func.__name__, NETWORKS):
        with pytest.raises((ValueError, AssertionError)):
            check(estimator)
    else:
        check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:.*has exactly the FC:UserWarning")  # fit, then partial_fit
def test_what_does_not_apply_to_fc_is_listed() -> None:
    """Each listed check fails, because X is not FC; each other one passes."""
    results = check_estimator(
        ForgeClassifier(), on_fail=None, on_skip=None, expected_failed_checks=NOT_FC
    )
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(NOT_FC)
    assert not [r["check_name"] for r in results if r["status"] == "failed"]
    for result in results:
        if result["status"] == "xfail":
            text = f"{result['exception']!r} {result['exception'].__context__!r}"
            assert any(w in text for w in ("not the edges", "beyond a corr", "any order of"))
