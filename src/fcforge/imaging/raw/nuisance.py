"""Confounds of a scan we preprocessed ourselves, under fMRIPrep's column names.

With these names nilearn's `load_confounds` methods (simple, scrubbing, ...) work on our own
output as they do on fMRIPrep's.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pandas as pd

from fcforge.imaging.raw.motion import framewise_displacement

HIGH_PASS_S = 128.0
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")


@dataclass(frozen=True)
class Tissues:
    """Flat (Fortran) voxel indices of tissues on the output grid.

    Attributes
    ----------
    brain, white_matter, csf : ndarray of int
    """

    brain: np.ndarray
    white_matter: np.ndarray
    csf: np.ndarray


@dataclass
class TissueSignals:
    """Collects tissue means and DVARS while volumes pass by, one at a time."""

    tissues: Tissues
    means: list[tuple[float, float, float]] = field(default_factory=list)
    dvars: list[float] = field(default_factory=list)
    _before: np.ndarray | None = None

    def add(self, volume: np.ndarray) -> None:
        """Take note of the next volume."""
        flat = volume.ravel(order="F")
        brain = flat[self.tissues.brain]
        parts = (flat[self.tissues.csf], flat[self.tissues.white_matter], brain)
        csf, white, whole = (float(part.mean()) if len(part) else 0.0 for part in parts)
        self.means.append((csf, white, whole))
        if self._before is not None:
            self.dvars.append(float(np.sqrt(np.mean((brain - self._before) ** 2))))
        self._before = brain


def mni_tissues(shape: tuple[int, int, int], affine: np.ndarray) -> Tissues:
    """Tissues from the MNI152 masks that nilearn ships.

    White matter is what is almost surely so (p > 0.95), eroded by one 2 mm voxel. CSF is what
    lies inside the brain, away from its border, in neither grey nor white matter: mostly the
    ventricles. The same for every subject, so the last answer is kept.
    """
    return _tissues(shape, tuple(np.asarray(affine, dtype=float).ravel().tolist()))


@lru_cache(maxsize=1)
def _tissues(shape: tuple[int, int, int], values: tuple[float, ...]) -> Tissues:
    import nibabel as nib
    from nilearn import datasets
    from nilearn.image import resample_img
    from scipy.ndimage import binary_erosion

    image = datasets.load_mni152_brain_mask(resolution=2)
    brain, grey, white, pure_white = (
        np.asarray(mask.dataobj) > 0
        for mask in (
            image,
            datasets.load_mni152_gm_mask(resolution=2),
            datasets.load_mni152_wm_mask(resolution=2),
            datasets.load_mni152_wm_mask(resolution=2, threshold=0.95),
        )
    )
    inner = binary_erosion(brain, iterations=6)
    masks = (brain, binary_erosion(pure_white), inner & ~grey & ~white)
    images = (nib.Nifti1Image(mask.astype(np.uint8), image.affine) for mask in masks)
    target = np.array(values).reshape(4, 4)
    moved = (resample_img(one, target, shape, interpolation="nearest") for one in images)
    return Tissues(*(np.flatnonzero(np.asarray(one.dataobj).ravel(order="F")) for one in moved))


def confounds_table(parameters: np.ndarray, signals: TissueSignals, tr: float) -> pd.DataFrame:
    """All columns: motion, tissues, their derivatives and squares, FD, DVARS, cosines.

    Parameters
    ----------
    parameters : ndarray of shape (n_volumes, 6)
        Translation in mm, rotation in radians.
    signals : TissueSignals
    tr : float
    """
    base = dict(zip(MOTION, parameters.T, strict=True))
    csf, white, whole = np.array(signals.means).T
    base |= {"csf": csf, "white_matter": white, "global_signal": whole}
    columns: dict[str, np.ndarray] = {}
    for name, values in base.items():
        change = np.concatenate([[np.nan], np.diff(values)])
        columns[name] = values
        columns[f"{name}_derivative1"] = change
        columns[f"{name}_power2"] = values**2
        columns[f"{name}_derivative1_power2"] = change**2
    columns["framewise_displacement"] = framewise_displacement(parameters)
    dvars = np.concatenate([[np.nan], signals.dvars])
    columns["dvars"] = dvars
    # Divided by its median: 1 for an ordinary volume. fMRIPrep's version also models the noise.
    columns["std_dvars"] = dvars / np.nanmedian(dvars)
    for k, wave in enumerate(cosines(len(parameters), tr)):
        columns[f"cosine{k:02d}"] = wave
    return pd.DataFrame(columns)


def cosines(n_volumes: int, tr: float, cut_s: float = HIGH_PASS_S) -> np.ndarray:
    """Discrete cosines slower than `cut_s`, the high-pass of SPM and fMRIPrep, (k, n_volumes)."""
    from nilearn.glm.first_level.design_matrix import create_cosine_drift

    return create_cosine_drift(1 / cut_s, np.arange(n_volumes) * tr)[:, :-1].T  # last: a constant
