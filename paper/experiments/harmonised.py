"""Ridge regression behind `SiteHarmoniser`, for harmonise_*.toml.

A site that was not learned yet is harmonised with the scans that are scored, without their
diagnoses: such a cell stands for a hospital with some scans of its own.
"""

from sklearn import config_context
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

from fcforge.estimator import SiteHarmoniser


def none() -> GridSearchCV:
    """Ridge regression on the edges; folds of the training people choose its penalty."""
    return GridSearchCV(RidgeClassifier(), {"alpha": [10, 30, 100, 300, 1000]})


def demean() -> Pipeline:
    """Return the same on edges whose means are alike at all sites."""
    return _harmonised("demean")


def combat() -> Pipeline:
    """Return the same on edges after ComBat."""
    return _harmonised("combat")


def _harmonised(how: str) -> Pipeline:
    with config_context(enable_metadata_routing=True):
        step = SiteHarmoniser(how=how, unseen="estimate")
        step.set_fit_request(site=True).set_transform_request(site=True)
        return make_pipeline(step, none())
