"""Settings of the parts."""

import pytest
from sklearn.model_selection import GridSearchCV

from fcforge.estimator import ForgeClassifier


def test_a_wrong_name_is_told(subjects) -> None:
    fc, y, _ = subjects
    with pytest.raises(ValueError, match="penalti"):
        ForgeClassifier(method_params={"penalti": 1.0}).fit(fc, y)
    with pytest.raises(ValueError, match="Invalid parameter 'seeds'"):
        ForgeClassifier().set_params(seeds=1)


def test_a_search_over_a_setting(subjects) -> None:
    fc, y, _ = subjects
    grid = {"method_params": [{"penalty": 1.0}, {"penalty": 1e3}]}
    search = GridSearchCV(ForgeClassifier(), grid, cv=2).fit(fc, y)
    best = search.best_params_["method_params"]["penalty"]
    assert (
        search.best_estimator_.model_.settings.learner.method.params["penalty"] == best
    )
