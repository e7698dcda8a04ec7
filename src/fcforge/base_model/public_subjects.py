"""Public subjects and the base model fitted on them, as methods and generators receive them.

Shapes: n subjects, R ROIs.
"""

from dataclasses import dataclass
from functools import cached_property

from numpy import ndarray as Array

from fcforge.base_model.model import BaseModel, digest_of


@dataclass(frozen=True, eq=False)
class PublicSubjects:
    """Public subjects of a run with their base model.

    Attributes
    ----------
    fc : ndarray of shape (n, R, R)
        FC matrices, confounds removed.
    y : ndarray of shape (n,)
        Classes (0 = control, 1 = patient), or numbers as `Target.scaled` gives them.
    site : ndarray of shape (n,)
        Name of each subject's site.
    base_model : BaseModel
    """

    fc: Array
    y: Array
    site: Array
    base_model: BaseModel

    @cached_property
    def digest(self) -> str:
        """SHA-256 of FC, targets and base model; site names are not part of it."""
        return digest_of({"fc": self.fc, "y": self.y, **self.base_model.arrays()})
