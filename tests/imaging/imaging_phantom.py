"""A simulated raw scan: known motion, known slice times, known ROI signals, known pose."""

from dataclasses import dataclass

import numpy as np

from fcforge.imaging.atlas import Atlas
from fcforge.imaging.raw.motion import rigid


@dataclass(frozen=True)
class Phantom:
    data: np.ndarray  # (x, y, z, t)
    affine: np.ndarray
    tr: float
    times: np.ndarray  # (z,)
    motion: np.ndarray  # (t, 4, 4): head at volume 0 -> head at volume t, world mm
    pose: np.ndarray  # MNI mm -> world mm of volume 0
    signals: np.ndarray  # (t, R) at the middle of each volume


class Waves:
    """Smooth ROI signals defined at every moment: sums of sines in 0.01-0.1 Hz, unit variance."""

    def __init__(
        self, rng: np.random.Generator, n_rois: int, n_waves: int = 12
    ) -> None:
        self.frequency = rng.uniform(0.012, 0.09, n_waves)
        self.phase = rng.uniform(0, 2 * np.pi, (n_waves, n_rois))
        self.weight = rng.normal(size=(n_waves, n_rois))
        self.weight /= np.linalg.norm(self.weight, axis=0) / np.sqrt(2)

    def __call__(self, t: float) -> np.ndarray:
        wave = np.sin(2 * np.pi * self.frequency[:, None] * t + self.phase)
        return (self.weight * wave).sum(axis=0)


def head_motion(rng: np.random.Generator, n: int) -> np.ndarray:
    """Slow drift, small tremor and a jump in the middle: up to about 2.4 mm and 1.8 degrees."""
    drift = np.cumsum(rng.normal(scale=1.0, size=(n, 6)), axis=0)
    drift /= np.abs(drift).max(axis=0)
    parameters = drift * np.array([1.2, 1.4, 1.8, 0.022, 0.015, 0.015])
    parameters += rng.normal(size=(n, 6)) * np.array([0.03] * 3 + [0.0005] * 3)
    parameters[n // 2 :] += np.array([0.4, -0.5, 0.6, 0.010, -0.005, 0.005])
    return parameters - parameters[0]


def make_phantom(
    atlas: Atlas,
    *,
    shape: tuple[int, int, int] = (64, 64, 36),
    mm: tuple[float, float, float] = (3.0, 3.0, 3.5),
    n_volumes: int = 60,
    tr: float = 2.0,
    seed: int = 0,
    percent: float = 2.0,
    noise: float = 3.0,
) -> Phantom:
    """EPI-like scan of nilearn's MNI brain in a tilted pose, slices taken interleaved."""
    from nilearn.datasets import load_mni152_brain_mask, load_mni152_template
    from scipy.ndimage import gaussian_filter, map_coordinates

    rng = np.random.default_rng(seed)
    template = load_mni152_template(resolution=2)
    t1 = np.asarray(template.dataobj, dtype=np.float32)
    inside = np.asarray(load_mni152_brain_mask(resolution=2).dataobj) > 0
    # EPI contrast: what is bright in T1 (white matter) is darker, CSF brightest.
    scaled = t1 / np.percentile(t1[inside], 99)
    epi = np.where(inside, 1400 - 700 * np.clip(scaled, 0, 1.2), 0.0)
    labels = atlas.on_grid(t1.shape, template.affine)
    epi = gaussian_filter(epi.astype(np.float32), 0.6)

    affine = np.diag([*mm, 1.0])
    affine[:3, 3] = -np.array(mm) * (np.array(shape) - 1) / 2
    pose = rigid(np.array([4.0, 16.0, -14.0, 0.08, -0.04, 0.06]), np.zeros(3))
    pose[:3, :3] *= 1.04
    centre = np.zeros(3)
    parameters = head_motion(rng, n_volumes)
    motion = np.stack([rigid(p, centre) for p in parameters])
    index = np.arange(shape[2])
    times = np.empty(shape[2])
    times[np.r_[index[::2], index[1::2]]] = index * tr / shape[2]
    wave = Waves(rng, atlas.n_rois)

    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1).reshape(
        -1, 3
    )
    world = grid @ affine[:3, :3].T + affine[:3, 3]
    to_template = np.linalg.inv(template.affine) @ np.linalg.inv(pose)
    data = np.empty((*shape, n_volumes), dtype=np.float32)
    slice_of = grid[:, 2]
    for t in range(n_volumes):
        m = to_template @ np.linalg.inv(motion[t])
        at = (world @ m[:3, :3].T + m[:3, 3]).T
        base = map_coordinates(epi, at, order=1, mode="constant")
        roi = map_coordinates(labels, at, order=0, mode="constant", cval=-1)
        value = np.zeros((shape[2], atlas.n_rois + 1))
        for k in range(shape[2]):
            value[k, :-1] = wave(t * tr + times[k])
        signal = value[slice_of, roi]
        volume = base * (1 + percent / 100 * signal)
        volume += rng.normal(scale=noise, size=volume.shape) * (base > 0)
        data[..., t] = volume.reshape(shape)
    middle = times.max() / 2
    signals = np.stack([wave(t * tr + middle) for t in range(n_volumes)])
    return Phantom(data, affine, tr, times, motion, pose, signals)


def displacement(
    found: np.ndarray, true: np.ndarray, pose: np.ndarray, atlas: Atlas
) -> np.ndarray:
    """Mean distance (mm) over brain points between found and true transforms, per volume."""
    columns, affine = atlas.volume
    xyz = np.argwhere(columns >= 0) @ affine[:3, :3].T + affine[:3, 3]
    points = xyz[::5000] @ pose[:3, :3].T + pose[:3, 3]
    # A fixed offset of the whole series (the choice of reference) is no residual motion.
    gap = np.linalg.inv(found) @ true
    gap = np.linalg.inv(gap[0]) @ gap
    moved = np.einsum("tij,pj->tpi", gap[:, :3, :3], points) + gap[:, None, :3, 3]
    return np.linalg.norm(moved - points, axis=-1).mean(axis=1)
