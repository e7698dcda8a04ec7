"""Registration of a scan to MNI space by one affine, and confounds of a scan in MNI space.

antspyx finds the affine to the template that nilearn ships. Non-linear registration of an EPI scan to a T1
template without a T1 image made the overlap of ROIs worse in our tests (Dice 0.78 against 0.85 for the affine),
so it is not offered; use fMRIPrep for that. The confounds have fMRIPrep's column names, so that nilearn's
`load_confounds` methods (simple, scrubbing, ...) work on this output as on fMRIPrep's.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from nibabel.affines import from_matvec

from fcforge.core.errors import DataError, optional
from fcforge.imaging.raw.motion import framewise_displacement

SPACE = "MNI152NLin2009aSym"
# Grid of the output: the usual MNI box at 3 mm
SHAPE = (61, 73, 61)
AFFINE = from_matvec(np.eye(3) * 3, [-90, -126, -72])
HIGH_PASS_S = 128.0  # cosine confounds have longer periods than this
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")


def register_to_mni(mean: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Register a scan to MNI space by an affine transform.

    ANTs samples points for mutual information with a fixed seed. Still the result is not repeatable: two
    registrations of one scan differed by 0.1 to 0.3 mm at the edge of the brain, also with one thread.

    Parameters
    ----------
    mean : ndarray of shape (x, y, z)
        Mean of the realigned scan.
    affine : ndarray of shape (4, 4)
        Voxel index to mm.

    Returns
    -------
    ndarray of shape (4, 4)
        Maps a point of MNI space in mm to the point of the scan in mm.

    Raises
    ------
    DataError
        If the transform would stretch or shrink the brain more than twofold.
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
    """Convert a volume (x, y, z) to an antspyx image with the world coordinates of nibabel (RAS, mm).

    The convention of ANTs is LPS. It only relates images to each other, so any coordinates serve that all
    images share, and no axis has to be flipped.
    """
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    return _ants().from_numpy(
        np.ascontiguousarray(data, dtype=np.float32),
        origin=affine[:3, 3].tolist(),
        spacing=spacing.tolist(),
        direction=affine[:3, :3] / spacing,
    )


def affine_of_transform(file: str) -> np.ndarray:
    """Return the matrix (4, 4) of an ANTs affine or Euler transform file.

    It maps points in mm of the fixed image to the moving image.
    """
    transform = _ants().read_transform(file)
    # the images of four points determine it, whatever the parameters in the file
    points = np.vstack([np.eye(3), np.zeros(3)])
    moved = np.array(
        [transform.apply_to_point(tuple(point)) for point in points.tolist()]
    )
    matrix = np.eye(4)
    matrix[:3] = moved.T
    matrix[:3, :3] -= moved[3][:, None]
    return matrix


def _ants() -> Any:
    """Return the module antspyx; raise `DataError` if it is not installed."""
    return optional("ants", "imaging", DataError)


class Tissues(NamedTuple):
    """Masks (x, y, z) of tissues on the output grid."""

    brain: np.ndarray
    white_matter: np.ndarray
    csf: np.ndarray


@lru_cache(maxsize=1)
def mni_tissues() -> Tissues:
    """Return masks of tissues on the output grid, from the MNI152 masks that nilearn ships.

    White matter has a probability above 0.95 and is eroded by one 2 mm voxel. Cerebrospinal fluid (CSF) lies
    inside the brain, away from its border, in neither grey nor white matter: mostly the ventricles. The masks
    are the same for every subject, so they are cached.
    """
    import nibabel as nib
    from nilearn import datasets
    from nilearn.image import resample_img
    from scipy.ndimage import binary_erosion

    template = datasets.load_mni152_brain_mask(resolution=2)
    grey = datasets.load_mni152_gm_mask(resolution=2).get_fdata() > 0
    # The looser mask keeps CSF clear of white matter, the stricter one is that of white matter.
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
    """Compute the table of confounds, with a row per volume and fMRIPrep's names of columns.

    Columns are motion and mean signals of tissues, their derivatives and squares, framewise displacement,
    DVARS and cosines.

    Parameters
    ----------
    parameters : ndarray of shape (n_volumes, 6)
        Translation in mm, rotation in radians.
    scan : ndarray of shape (x, y, z, n_volumes)
        Scan on the output grid.
    tissues : Tissues
    tr : float
        Repetition time in seconds.
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
    """Return discrete cosines with periods longer than `HIGH_PASS_S`, as in SPM and fMRIPrep.

    Parameters
    ----------
    n_volumes : int
    tr : float
        Repetition time in seconds.

    Returns
    -------
    ndarray of shape (n_cosines, n_volumes)
    """
    from nilearn.glm.first_level.design_matrix import create_cosine_drift

    drifts = create_cosine_drift(1 / HIGH_PASS_S, np.arange(n_volumes) * tr)
    return drifts[:, :-1].T  # the last is a constant
