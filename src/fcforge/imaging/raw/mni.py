"""To MNI space by one affine, and the confounds of a scan that is there, under fMRIPrep's names.

The affine is found by antspyx, onto the template that nilearn ships. Non-linear registration of an
EPI straight to a T1 template made the overlap of ROIs worse in our tests (Dice 0.78 against 0.85
for the affine), so it is not offered; use fMRIPrep for that. With fMRIPrep's column names nilearn's
`load_confounds` methods (simple, scrubbing, ...) work on our own output as on fMRIPrep's.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from nibabel.affines import from_matvec

from fcforge.core.errors import DataError, optional
from fcforge.imaging.raw.motion import framewise_displacement

SPACE = "MNI152NLin2009aSym"
# of the output: the usual MNI box at 3 mm
SHAPE = (61, 73, 61)
AFFINE = from_matvec(np.eye(3) * 3, [-90, -126, -72])
HIGH_PASS_S = 128.0
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")


def register_to_mni(mean: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Register a scan to MNI space; return the affine from MNI mm to the scan's mm.

    ANTs samples points for mutual information by a fixed seed. It does not make the result
    repeatable: runs on one scan were 0.1 to 0.3 mm apart at the edge of the brain, with one
    thread, too.

    Parameters
    ----------
    mean : ndarray of shape (x, y, z)
        Mean of the realigned scan.
    affine : ndarray of shape (4, 4)

    Returns
    -------
    ndarray of shape (4, 4)
        ``scan(A p)`` is at the MNI point p.
    """
    ants = _ants()
    import nibabel as nib
    from nilearn.datasets import load_mni152_template
    from nilearn.masking import compute_epi_mask

    template = load_mni152_template(resolution=2)
    fixed = to_ants(np.asarray(template.dataobj, dtype=np.float32), template.affine)
    image = nib.Nifti1Image(np.asarray(mean, dtype=np.float32), affine)
    mask = compute_epi_mask(image, opening=1, exclude_zeros=False)
    moving = to_ants(np.where(np.asarray(mask.dataobj) > 0, mean, 0.0), affine)
    registration = ants.registration(
        fixed, moving, type_of_transform="Affine", random_seed=1
    )
    matrix = affine_of_transform(registration["fwdtransforms"][0])
    stretch = np.linalg.svd(matrix[:3, :3])[1]
    if stretch.min() < 0.5 or stretch.max() > 2.0:
        raise DataError(
            f"registration to MNI failed: it would stretch the brain {stretch.max():.1f}-fold.",
            do="Check the scan's orientation (its affine) and that it covers the brain.",
        )
    return matrix


def to_ants(data: np.ndarray, affine: np.ndarray) -> Any:
    """Convert a volume (x, y, z) to an antspyx image whose physical frame is our world mm (RAS).

    ANTs itself counts in LPS; since it only relates images to each other, any frame serves as
    long as all images share it, and no axis has to be flipped.
    """
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    return _ants().from_numpy(
        np.ascontiguousarray(data, dtype=np.float32),
        origin=affine[:3, 3].tolist(),
        spacing=spacing.tolist(),
        direction=affine[:3, :3] / spacing,
    )


def affine_of_transform(file: str) -> np.ndarray:
    """Return the 4 x 4 matrix of an ANTs affine or Euler transform file: fixed mm to moving mm."""
    transform = _ants().read_transform(file)
    # Reading it off by its action needs no knowledge of the parameterisation.
    points = np.vstack([np.eye(3), np.zeros(3)])
    moved = np.array(
        [transform.apply_to_point(tuple(point)) for point in points.tolist()]
    )
    matrix = np.eye(4)
    matrix[:3] = moved.T
    matrix[:3, :3] -= moved[3][:, None]
    return matrix


def _ants() -> Any:
    return optional("ants", "imaging", DataError)


class Tissues(NamedTuple):
    """Masks (x, y, z) of tissues on the output grid."""

    brain: np.ndarray
    white_matter: np.ndarray
    csf: np.ndarray


@lru_cache(maxsize=1)
def mni_tissues() -> Tissues:
    """Return tissues on the output grid from the MNI152 masks that nilearn ships.

    White matter is what is almost surely so (p > 0.95), eroded by one 2 mm voxel. CSF is what
    lies inside the brain, away from its border, in neither grey nor white matter: mostly the
    ventricles. The same for every subject, so the answer is kept.
    """
    import nibabel as nib
    from nilearn import datasets
    from nilearn.image import resample_img
    from scipy.ndimage import binary_erosion

    template = datasets.load_mni152_brain_mask(resolution=2)
    grey = datasets.load_mni152_gm_mask(resolution=2).get_fdata() > 0
    white, pure_white = (
        datasets.load_mni152_wm_mask(resolution=2, threshold=p).get_fdata() > 0
        for p in (0.2, 0.95)
    )
    brain = template.get_fdata() > 0
    inner = binary_erosion(brain, iterations=6)
    masks = []
    for mask in (brain, binary_erosion(pure_white), inner & ~grey & ~white):
        image = nib.Nifti1Image(mask.astype(np.uint8), template.affine)
        moved = resample_img(image, AFFINE, SHAPE, interpolation="nearest")
        masks.append(moved.get_fdata() > 0)
    return Tissues(*masks)


def confounds_table(
    parameters: np.ndarray, scan: np.ndarray, tissues: Tissues, tr: float
) -> pd.DataFrame:
    """Compute all confound columns: motion, tissues, their derivatives and squares, FD, DVARS, cosines.

    Parameters
    ----------
    parameters : ndarray of shape (n_volumes, 6)
        Translation in mm, rotation in radians.
    scan : ndarray of shape (x, y, z, n_volumes)
    tissues : Tissues
    tr : float
    """
    base = dict(zip(MOTION, parameters.T, strict=True))
    brain = scan[tissues.brain]
    base["csf"] = scan[tissues.csf].mean(axis=0, dtype=np.float64)
    base["white_matter"] = scan[tissues.white_matter].mean(axis=0, dtype=np.float64)
    base["global_signal"] = brain.mean(axis=0, dtype=np.float64)
    columns: dict[str, np.ndarray] = {}
    for name, values in base.items():
        change = np.concatenate([[np.nan], np.diff(values)])
        columns |= {name: values, f"{name}_derivative1": change}
        columns |= {
            f"{name}_power2": values**2,
            f"{name}_derivative1_power2": change**2,
        }
    columns["framewise_displacement"] = framewise_displacement(parameters)
    jumps = np.sqrt((np.diff(brain, axis=1) ** 2).mean(axis=0, dtype=np.float64))
    columns["dvars"] = dvars = np.concatenate([[np.nan], jumps])
    # Divided by its median: 1 for an ordinary volume. fMRIPrep's version also models the noise.
    columns["std_dvars"] = dvars / np.nanmedian(dvars)
    waves = cosines(len(parameters), tr)
    return pd.DataFrame(
        columns | {f"cosine{k:02d}": wave for k, wave in enumerate(waves)}
    )


def cosines(n_volumes: int, tr: float) -> np.ndarray:
    """Return discrete cosines slower than `HIGH_PASS_S`, as SPM and fMRIPrep have, (k, n_volumes)."""
    from nilearn.glm.first_level.design_matrix import create_cosine_drift

    return create_cosine_drift(1 / HIGH_PASS_S, np.arange(n_volumes) * tr)[
        :, :-1
    ].T  # last: a constant
