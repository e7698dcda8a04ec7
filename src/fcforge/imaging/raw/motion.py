r"""Rigid motion correction by inverse-compositional Gauss-Newton.

Each volume is aligned to a reference by minimising

.. math:: \sum_x \left( s \, V_t(M_t x) - V_0(x) \right)^2

over points x of the reference :math:`V_0`, for each volume :math:`V_t`, by the rigid transform :math:`M_t`
(world mm) and a gain :math:`s`. The Jacobian depends on the reference alone (Baker & Matthews 2004, IJCV
56:221), so an iteration costs one interpolation.

A rigid transform has six parameters: translation in mm, and rotation in radians about the centre of the grid.
"""

from typing import Any

import numpy as np

HEAD_RADIUS_MM = 50.0
SMOOTH_FWHM_MM = 5.0
SAMPLE_MM = 4.0
MAX_ITERATIONS = 40
TOLERANCE_MM = 1e-3
Grid = tuple[tuple[int, ...], np.ndarray]  # shape and affine
# For n volumes the matrices M_t (n, 4, 4), from mm in the reference to mm in the volume, and their six
# parameters (n, 6)
Motion = tuple[np.ndarray, np.ndarray]


def rigid(parameters: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Return the matrix (4, 4) of a rigid transform: rotate about a centre, then shift.

    Parameters
    ----------
    parameters : ndarray of shape (6,)
        Translations along x, y, z in mm, then rotations about x, y, z in radians, applied in this order.
    centre : ndarray of shape (3,)
        Centre of the rotation in mm.
    """
    from scipy.spatial.transform import Rotation

    shift, angles = np.asarray(parameters, dtype=float).reshape(2, 3)
    matrix = np.eye(4)
    matrix[:3, :3] = turn = Rotation.from_euler("xyz", angles).as_matrix()
    matrix[:3, 3] = centre - turn @ centre + shift
    return matrix


def parameters_of(matrix: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Return the parameters (6,) of a rigid transform; inverse of `rigid`."""
    from scipy.spatial.transform import Rotation

    turn = matrix[:3, :3]
    shift = matrix[:3, 3] - centre + turn @ centre
    return np.concatenate([shift, Rotation.from_matrix(turn).as_euler("xyz")])


def framewise_displacement(parameters: np.ndarray) -> np.ndarray:
    """Return framewise displacement in mm (Power et al. 2012).

    It is the sum of the absolute changes of the six parameters since the volume before; a rotation counts as
    the arc on a sphere of 50 mm.

    Parameters
    ----------
    parameters : ndarray of shape (n_volumes, 6)
        Translation in mm, rotation in radians.

    Returns
    -------
    ndarray of shape (n_volumes,)
        NaN for the first volume, as in fMRIPrep.
    """
    change = np.abs(np.diff(parameters, axis=0))
    change[:, 3:] *= HEAD_RADIUS_MM
    return np.concatenate([[np.nan], change.sum(axis=1)])


def estimate_motion(data: np.ndarray, affine: np.ndarray) -> Motion:
    """Estimate the motion of every volume relative to the first, then relative to the mean.

    Parameters
    ----------
    data : ndarray of shape (x, y, z, n_volumes)
    affine : ndarray of shape (4, 4)
        Voxel index to mm.

    Returns
    -------
    matrices : ndarray of shape (n_volumes, 4, 4)
        From mm in the reference to mm in each volume.
    parameters : ndarray of shape (n_volumes, 6)
        Translation in mm, rotation in radians.
    """
    middle = (np.array(data.shape[:3]) - 1) / 2
    centre = affine[:3, :3] @ middle + affine[:3, 3]
    first = _Target(data[..., 0], affine, centre)
    matrices = first.align_all(data, [np.eye(4)] * data.shape[3])
    mean = mean_volume(data, affine, matrices)
    matrices = _Target(mean, affine, centre).align_all(data, matrices)
    parameters = [parameters_of(matrix, centre) for matrix in matrices]
    return np.stack(matrices), np.stack(parameters)


def mean_volume(data: np.ndarray, affine: np.ndarray, matrices: Any) -> np.ndarray:
    """Return the mean of the realigned volumes (x, y, z), on the scan's own grid.

    Parameters
    ----------
    data : ndarray of shape (x, y, z, n_volumes)
    affine : ndarray of shape (4, 4)
        Voxel index to mm.
    matrices : sequence of ndarray of shape (4, 4)
        Motion of every volume, from `estimate_motion`.
    """
    total = np.zeros(data.shape[:3], dtype=np.float64)
    grid = (data.shape, affine)
    for t, matrix in enumerate(matrices):
        total += resample(data[..., t], affine, matrix, grid, order=1)
    return (total / len(matrices)).astype(np.float32)


def resample(
    volume: np.ndarray,
    affine: np.ndarray,
    matrix: np.ndarray,
    grid: Grid,
    order: int = 3,
) -> np.ndarray:
    """Resample a volume to a target grid: ``out(x) = volume(matrix x)`` for every voxel x in mm.

    Parameters
    ----------
    volume : ndarray of shape (x, y, z)
    affine : ndarray of shape (4, 4)
        Voxel index of `volume` to mm.
    matrix : ndarray of shape (4, 4)
        From mm in the target to mm in `volume`.
    grid : (tuple of int, ndarray of shape (4, 4))
        Shape and affine of the target.
    order : int
        Order of the interpolating spline.
    """
    from scipy.ndimage import affine_transform

    shape, target = grid
    mode = "nearest" if order > 1 else "constant"
    to_voxel = np.linalg.inv(affine) @ matrix @ target
    data = np.asarray(volume, dtype=np.float32)
    return affine_transform(
        data, to_voxel, output_shape=shape[:3], order=order, mode=mode
    )


class _Target:
    """Reference volume to which others are aligned.

    It holds sample points of the head with their values, and the pseudo-inverse of their Jacobian with respect
    to the six parameters and the gain.

    Parameters
    ----------
    volume : ndarray of shape (x, y, z)
    affine : ndarray of shape (4, 4)
        Voxel index to mm.
    centre : ndarray of shape (3,)
        Centre of rotations in mm.
    """

    def __init__(
        self, volume: np.ndarray, affine: np.ndarray, centre: np.ndarray
    ) -> None:
        self.affine = affine
        self.centre = centre
        self.voxel_mm = np.linalg.norm(affine[:3, :3], axis=0)
        smooth = self._smooth(volume)
        step = np.maximum(np.rint(SAMPLE_MM / self.voxel_mm), 1).astype(int)
        lattice = np.zeros(volume.shape, dtype=bool)
        # Border voxels have no proper gradient and leave the field of view first.
        lattice[tuple(slice(2, -2, size) for size in step)] = True
        head = smooth > 0.2 * np.percentile(smooth, 98)
        voxels = np.argwhere(lattice & head)
        gradient = np.stack(np.gradient(smooth), axis=-1)[tuple(voxels.T)]
        gradient = gradient @ np.linalg.inv(affine[:3, :3])  # per voxel -> per mm
        self.points = voxels @ affine[:3, :3].T + affine[:3, 3]
        self.values = smooth[tuple(voxels.T)].astype(np.float64)
        # Derivatives by translation (gradient), by rotation (arm x gradient) and by the gain (value).
        arm = self.points - centre
        jacobian = np.concatenate(
            [gradient, np.cross(arm, gradient), self.values[:, None]], 1
        )
        self.solve = np.linalg.pinv(jacobian)

    def _smooth(self, volume: np.ndarray) -> np.ndarray:
        """Return a volume smoothed by a Gaussian of `SMOOTH_FWHM_MM`."""
        from scipy.ndimage import gaussian_filter

        sigma = SMOOTH_FWHM_MM / 2.3548 / self.voxel_mm
        return gaussian_filter(np.asarray(volume, dtype=np.float32), sigma)

    def align_all(self, data: np.ndarray, start: list[np.ndarray]) -> list[np.ndarray]:
        """Align all volumes to the reference.

        Parameters
        ----------
        data : ndarray of shape (x, y, z, n_volumes)
        start : list of ndarray of shape (4, 4)
            First guess of each transform. Instead of the identity, the result of the volume before is used.

        Returns
        -------
        list of ndarray of shape (4, 4)
            From mm in the reference to mm in each volume.
        """
        transforms: list[np.ndarray] = []
        for t in range(data.shape[3]):
            begin = start[t]
            if transforms and np.allclose(begin, np.eye(4)):
                begin = transforms[-1]
            transforms.append(self.align(data[..., t], begin))
        return transforms

    def align(self, volume: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Align one volume to the reference.

        Parameters
        ----------
        volume : ndarray of shape (x, y, z)
        start : ndarray of shape (4, 4)
            First guess.

        Returns
        -------
        ndarray of shape (4, 4)
            From mm in the reference to mm in the volume.
        """
        from scipy.ndimage import map_coordinates, spline_filter

        smooth = spline_filter(self._smooth(volume), order=3, output=np.float32)
        to_voxel = np.linalg.inv(self.affine)
        matrix = start.copy()
        gain = 1.0
        for _ in range(MAX_ITERATIONS):
            at = self.points @ matrix[:3, :3].T + matrix[:3, 3]  # mm in the volume
            at = at @ to_voxel[:3, :3].T + to_voxel[:3, 3]  # voxel index
            values = map_coordinates(
                smooth, at.T, order=3, mode="nearest", prefilter=False
            )
            # The step moves the reference to the volume ("inverse"), so its inverse corrects the
            # transform; `solve` is the same in all iterations.
            step = self.solve @ (gain * values - self.values)
            matrix = matrix @ np.linalg.inv(rigid(step[:6], self.centre))
            gain /= 1 + step[6]
            shift = np.abs(step[:3]).max()
            turn = np.abs(step[3:6]).max()
            if shift + HEAD_RADIUS_MM * turn < TOLERANCE_MM:
                break
        return matrix
