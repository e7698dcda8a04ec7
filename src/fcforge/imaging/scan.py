"""Reading of 4D NIfTI scans: checks of the header, and voxels in bounded memory.

TR is the repetition time, the time between two volumes. An affine maps voxel indices to mm. A grid is the shape
of a volume with its affine.
"""

import math
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.formatting import abbreviated, counted
from fcforge.imaging.matrix_files import MemoryBudget

Grid = tuple[tuple[int, ...], bytes]  # shape, and affine as bytes: can be a cache key
VOLUMES_AT_ONCE = 16
TR_TOLERANCE_S = 0.005  # largest difference of two equal TRs
TR_LIMITS_S = (0.01, 30.0)  # outside: another unit, mostly milliseconds


class ScanHeader(NamedTuple):
    """Header of a 4D scan; the voxels stay on disk.

    Attributes
    ----------
    path : Path
    shape : tuple of four int
    affine : ndarray of shape (4, 4)
        Voxel index to mm.
    tr : float or None
        Repetition time in the header, seconds; None where the header has none.
    scanner_space : bool
        Whether the affine leads to the scanner's coordinates, by the codes of the header.
    """

    path: Path
    shape: tuple[int, int, int, int]
    affine: np.ndarray
    tr: float | None
    scanner_space: bool

    @property
    def n_volumes(self) -> int:
        """Number of volumes."""
        return self.shape[3]

    @property
    def grid(self) -> Grid:
        """Shape of a volume and bytes of the affine."""
        return self.shape[:3], self.affine.tobytes()


def open_scan(path: Path) -> ScanHeader:
    """Open a 4D scan and check its header.

    Raises
    ------
    DataError
        If the file is missing, not NIfTI or not 4D, or its affine does not place voxels in space.
    """
    image = load_image(path)
    if len(image.shape) != 4 or image.shape[3] < 2:
        shape = tuple(image.shape)
        raise DataError(
            f"the image has the shape {shape}, so it is not a 4D scan of two or more volumes."
        )
    header = image.header
    code = int(header["sform_code"]) or int(header["qform_code"])
    if code == 0:
        raise DataError(
            "wrong affine: the header places the voxels nowhere (sform and qform codes are 0).",
            do="Write the scan with its affine (e.g. fslcpgeom, or nibabel with sform code 4).",
        )
    affine = np.asarray(image.affine, dtype=float)
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-6:
        raise DataError("wrong affine: it is singular or not finite.")
    zoom = float(header["pixdim"][4])
    unit = header.get_xyzt_units()[1]
    tr = zoom * {"msec": 1e-3, "usec": 1e-6}.get(unit, 1.0)
    # Tools that do not know the TR write 0 or, without a time unit, 1.
    unknown = tr <= 0 or (unit == "unknown" and zoom == 1.0)
    known = None if unknown else round(tr, 6)
    return ScanHeader(path, image.shape, affine, known, code == 1)


def repetition_time(
    scan: ScanHeader, sidecar_tr: float | None, override: float | None
) -> float | None:
    """Return the TR of a scan in seconds (`agreed_tr` with the TR of its header)."""
    return agreed_tr(scan.tr, sidecar_tr, override)


def agreed_tr(
    header_tr: float | None, sidecar_tr: float | None, override: float | None
) -> float | None:
    """Return the TR that the user gave, else the one of sidecar and header, which must agree.

    Parameters
    ----------
    header_tr, sidecar_tr : float or None
        TR in seconds of the file's header and its JSON sidecar; None where they have none.
    override : float or None
        TR that the user gave.

    Returns
    -------
    float or None
        None if the TR is unknown.

    Raises
    ------
    DataError
        If header and sidecar differ and the user gave none, or the TR is in another unit.
    """
    if override is not None:
        return in_seconds(override)
    if sidecar_tr and header_tr and abs(sidecar_tr - header_tr) > TR_TOLERANCE_S:
        raise DataError(
            f"mixed TRs: the header says {header_tr:g} s, the sidecar {sidecar_tr:g} s.",
            do="Correct the file, or pass the true one: --tr SECONDS.",
        )
    return in_seconds(sidecar_tr or header_tr)


def in_seconds(tr: float | None) -> float | None:
    """Return a repetition time in seconds as it is, if a scan can have it.

    Raises
    ------
    DataError
        Outside `TR_LIMITS_S`.
    """
    shortest, longest = TR_LIMITS_S
    if tr is None or shortest <= tr <= longest:
        return tr
    raise DataError(
        f"no scan has a repetition time of {tr:g} s; is it in milliseconds?",
        do="Correct the file, or pass the true one: --tr SECONDS.",
    )


def refuse_blank_volumes(signals: np.ndarray, first: int = 0) -> None:
    """Raise `DataError` for volumes that are 0 or NaN everywhere; they would correlate all ROIs.

    Parameters
    ----------
    signals : ndarray of shape (n, n_volumes)
        Voxels or ROIs. Signals that are blank in every volume are left to other checks.
    first : int
        Volumes before this one are dropped anyway.
    """
    blank = np.empty(signals.shape[1], dtype=bool)
    for start in range(0, len(blank), VOLUMES_AT_ONCE):
        block = signals[:, start : start + VOLUMES_AT_ONCE]
        alive = np.isfinite(block) & (block != 0)
        blank[start : start + VOLUMES_AT_ONCE] = ~alive.any(axis=0)
    numbers = np.flatnonzero(blank[first:]) + first + 1
    if len(numbers) and not blank.all():
        raise DataError(
            f"no signal in {counted(len(numbers), 'volume')} of {len(blank)} "
            f"({abbreviated(map(str, numbers))}): 0 or NaN everywhere.",
            do="Leave such volumes out of the file; those at the start: --drop NUMBER.",
        )


def read_voxels(scan: ScanHeader, flat: np.ndarray) -> np.ndarray:
    """Read the time series of chosen voxels, as `read_voxels_and_mean` does."""
    return read_voxels_and_mean(scan, flat)[0]


def read_voxels_and_mean(
    scan: ScanHeader, flat: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Read the time series of some voxels and the mean over time of all, in bounded memory.

    Parameters
    ----------
    scan : ScanHeader
    flat : ndarray of int
        Voxel indices into the Fortran-ordered volume, ascending.

    Returns
    -------
    voxels : ndarray of shape (len(flat), n_volumes), float32
        NaN and infinite values are left as they are.
    mean : ndarray of shape (x, y, z), float32
        Mean of every voxel over all volumes.

    Raises
    ------
    DataError
        If the file ends early or its compression is damaged.
    """
    from nibabel.openers import ImageOpener

    proxy = load_image(scan.path).dataobj
    n = scan.n_volumes
    done = 0
    size = math.prod(scan.shape[:3]) * proxy.dtype.itemsize
    out = np.empty((len(flat), n), dtype=np.float32)
    total = np.zeros(math.prod(scan.shape[:3]))
    try:
        with ImageOpener(str(scan.path)) as file:
            file.read(proxy.offset)  # a gzip stream cannot jump there
            while done < n:
                take = min(VOLUMES_AT_ONCE, n - done)
                raw = file.read(take * size)
                if len(raw) < take * size:
                    raise EOFError
                volumes = np.frombuffer(raw, proxy.dtype).reshape(take, -1)
                total += volumes.sum(axis=0, dtype=np.float64)
                scaled = volumes[:, flat].astype(np.float32) * np.float32(proxy.slope)
                out[:, done : done + take] = scaled.T + np.float32(proxy.inter)
                done += take
            file.read(1)  # to the end of the stream, where gzip checks its checksum
    except (EOFError, OSError, zlib.error) as error:
        damage = f"truncated or damaged: {done} of {n} volumes could be read"
        raise _damaged(scan.path, damage, error) from None
    mean = (total / n * proxy.slope + proxy.inter).astype(np.float32)
    return out, mean.reshape(scan.shape[:3], order="F")


@lru_cache(maxsize=4)
def read_labels(source: Any) -> tuple[np.ndarray, np.ndarray]:
    """Read a volume of labels; the result is cached for the next subject.

    Parameters
    ----------
    source : Path or nibabel image

    Returns
    -------
    labels : ndarray of shape (x, y, z), int32
    affine : ndarray of shape (4, 4)

    Raises
    ------
    DataError
        If it is not one volume of whole numbers of at least 0.
    """
    image = load_image(source)
    path = source if isinstance(source, Path) else ""
    data = read_volume(source)
    data = data[..., 0] if data.ndim == 4 and data.shape[3] == 1 else data
    if data.ndim != 3:
        raise DataError(f"shape {data.shape} is not one label volume.", where=path)
    labels = np.rint(data)
    if (
        not np.isfinite(data).all()
        or np.abs(labels - data).max() > 1e-3
        or labels.min() < 0
    ):
        hint = "Weighted maps: one per ROI in a 4D file. A probabilistic volume: make labels of it."
        raise DataError(
            "labels must be whole numbers, 0 = outside; these are not.",
            where=path,
            do=hint,
        )
    return labels.astype(np.int32), np.asarray(image.affine, dtype=float)


def read_mask(path: Path, scan: ScanHeader) -> np.ndarray:
    """Read a boolean mask on the scan's own grid.

    Raises
    ------
    DataError
        If the mask lies on another grid, or is empty.
    """
    labels, affine = read_labels(path)
    if labels.shape != scan.shape[:3] or not np.allclose(
        affine, scan.affine, atol=1e-3
    ):
        grids = f"({labels.shape} and {scan.shape[:3]})"
        message = f"mask {path.name} and scan are on different grids {grids}."
        raise DataError(f"wrong affine: {message}")
    if not labels.any():
        raise DataError(
            f"mask {path.name} is empty.", do="Make it again, or remove it."
        )
    return labels > 0


def read_volume(path: Any) -> np.ndarray:
    """Read all voxels of a file or image as float32."""
    image = load_image(path)
    MemoryBudget(path).take(math.prod(image.shape) * 4)
    try:
        return np.asarray(image.dataobj, dtype=np.float32)
    except (EOFError, OSError, zlib.error, ValueError) as error:
        raise _damaged(path, "truncated or damaged", error) from None


def _damaged(path: Path, damage: str, error: Exception) -> DataError:
    """Return the error for a file whose voxels cannot be read; `damage` is the problem."""
    return DataError(
        f"{damage} ({type(error).__name__}).",
        where=path,
        do="Copy or compress the file again.",
    )


def load_image(path: Any) -> Any:
    """Open the NIfTI image of a file; return an image in memory as it is.

    Raises
    ------
    DataError
        If the file is not a readable NIfTI image.
    """
    import nibabel as nib

    if hasattr(path, "dataobj"):
        return path
    try:
        image = nib.load(path)
    except (nib.filebasedimages.ImageFileError, OSError, EOFError, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"not a readable NIfTI image ({reason}).", where=path) from None
    if not isinstance(image, nib.nifti1.Nifti1Pair):
        raise DataError(f"is {type(image).__name__}, not NIfTI.", where=path)
    return image
