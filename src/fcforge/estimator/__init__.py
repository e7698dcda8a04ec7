"""The scikit-learn face of fcforge."""

from fcforge.estimator.classifier import ForgeClassifier
from fcforge.estimator.explaining import edge_stability
from fcforge.estimator.inputs import InputError
from fcforge.estimator.transformers import ConfoundRemover, MatrixLog, SiteHarmoniser

__all__ = [
    "ConfoundRemover",
    "ForgeClassifier",
    "InputError",
    "MatrixLog",
    "SiteHarmoniser",
    "edge_stability",
]
