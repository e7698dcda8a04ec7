"""A method of one's own, given to an estimator as an object."""

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from fcforge import ForgeClassifier
from fcforge.core.errors import ConfigError
from fcforge.estimator import InputError
from fcforge.methods import METHODS, Method
from fcforge.methods.ewc import EWC
from fcforge.methods.forge import Forge

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from mas import MAS


@pytest.fixture(autouse=True)
def registered_names():
    """Forget the methods that a test has registered."""
    before = set(METHODS)
    yield
    for name in set(METHODS) - before:
        del METHODS[name]


def test_an_object_learns_as_its_name_does(subjects) -> None:
    fc, y, site = subjects
    given = ForgeClassifier(MAS(strength=10.0), epochs=2).fit(fc, y, site)
    named = ForgeClassifier("mas:MAS", method_params={"strength": 10.0}, epochs=2)
    named.fit(fc, y, site)
    np.testing.assert_array_equal(given.predict_proba(fc), named.predict_proba(fc))
    again = clone(given)
    assert again.method == given.method
    np.testing.assert_array_equal(
        again.fit(fc, y, site).predict_proba(fc), given.predict_proba(fc)
    )


def test_settings_of_an_object_are_read_set_and_searched(subjects) -> None:
    fc, y, site = subjects
    model = ForgeClassifier(MAS(strength=10.0), epochs=1)
    assert model.get_params()["method__strength"] == 10.0
    model.set_params(method__strength=3.0)
    assert model.get_params()["method__strength"] == 3.0
    assert model.fit(fc, y, site).model_.learner.method == MAS(strength=3.0)
    grid = {"method__strength": [1.0, 2.0]}
    search = GridSearchCV(ForgeClassifier(MAS(), epochs=1), grid, cv=2)
    search.fit(fc, y, site=np.arange(len(y)) % 2)
    assert len(search.cv_results_["params"]) == 2


def test_an_object_continues_and_survives_a_pickle_but_no_file(
    subjects, tmp_path
) -> None:
    fc, y, site = subjects
    here = np.asarray(site) == np.asarray(site)[0]
    model = ForgeClassifier(MAS(), epochs=1).partial_fit(
        fc[here], y[here], site="first"
    )
    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    buffer.seek(0)
    for name in [name for name in METHODS if ":" in name]:
        del METHODS[name]  # as in another process
    copy = joblib.load(buffer)
    np.testing.assert_array_equal(copy.predict_proba(fc), model.predict_proba(fc))
    copy.partial_fit(fc[~here], y[~here], site="second")
    with pytest.raises(ConfigError, match=r"'mas:MAS' is code of yours.*joblib"):
        model.save(tmp_path / "a.safetensors")
    model.set_params(method=MAS(strength=2.0))
    with pytest.raises(InputError, match="method or its settings changed"):
        model.partial_fit(fc[~here], y[~here], site="second")


@dataclass(frozen=True)
class Local(Method):
    """A method of a notebook."""

    name = "local"


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (EWC(strength=10.0), "ewc"),
        (Forge(variant="paper", memory=16), "forge"),
        (Local(), f"{__name__}:Local"),
    ],
)
def test_objects_have_the_names_of_their_classes(method, name) -> None:
    model = ForgeClassifier(method)
    assert model._method_name() == name
    params = {k: v for k, v in model.get_params().items() if k.startswith("method__")}
    if name == "ewc":
        assert params["method__strength"] == 10.0
    if name == "forge":
        assert (params["method__variant"], params["method__memory"]) == ("paper", 16)


def test_an_object_of_the_package_is_saved(subjects, tmp_path) -> None:
    fc, y, site = subjects
    model = ForgeClassifier(EWC(strength=10.0), epochs=1).fit(fc, y, site)
    model.save(tmp_path / "a.safetensors")
    read = ForgeClassifier.load(tmp_path / "a.safetensors")
    assert read.model_.learner.method == EWC(strength=10.0)
    assert (read.method, read.method_params) == ("ewc", {"strength": 10.0})
    np.testing.assert_array_equal(read.predict_proba(fc), model.predict_proba(fc))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": MAS}, r"Give an object, method=MAS\(...\), not its class"),
        ({"method": 3}, "method=3 is not a name.*'module:Class', or an object"),
        ({"generator": EWC}, "is not a name. See `fcforge list generators`"),
    ],
)
def test_what_is_no_method_is_refused_by_name(subjects, given, message) -> None:
    fc, y, site = subjects
    with pytest.raises(InputError, match=message):
        ForgeClassifier(epochs=1, **given).fit(fc, y, site)
