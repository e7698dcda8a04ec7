"""The scikit-learn face of fcforge."""

from fcforge.estimator.classifier import ForgeClassifier
from fcforge.estimator.explaining import edge_stability
from fcforge.estimator.inputs import InputError

__all__ = ["ForgeClassifier", "InputError", "edge_stability"]
