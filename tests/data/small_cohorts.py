"""Small cohorts, and folders and files of them, for the tests of this room."""

from pathlib import Path

import numpy as np
from scipy.io import savemat

from fcforge.data.cohort import Cohort
from fcforge.data.edges import upper_from_fc
from fcforge.data.simulated import simulate
from fcforge.imaging.series import pearson_fc


def tiny(n_rois: int = 6) -> Cohort:
    return simulate(n_rois=n_rois, n_sites=2, scale=0.06, seed=0)


def write_npz(path: Path, cohort: Cohort, **change: object) -> Path:
    arrays: dict[str, object] = {
        "fc_upper": upper_from_fc(cohort.fc),
        "label": cohort.y.astype(np.int8),
        "site": cohort.site,
        "subject_id": cohort.subject_id,
        **change,
    }
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    return path


def write_one(path: Path, matrix: np.ndarray) -> None:
    match path.suffix:
        case ".npy":
            np.save(path, matrix)
        case ".npz":
            np.savez(path, fc=matrix)
        case ".mat":
            savemat(path, {"ROISignals": matrix}, do_compression=True)
        case ".csv":
            np.savetxt(path, matrix, delimiter=",")
        case _:
            np.savetxt(path, matrix, delimiter="\t", header="made up")


def write_folder(
    root: Path, suffix: str = ".tsv", series: bool = False, header: str = ""
) -> tuple[Cohort, dict[str, np.ndarray]]:
    """A folder of one file per subject, the cohort it was made of, and the expected FC."""
    cohort = tiny()
    rng = np.random.default_rng(0)
    lines = [header or "participant_id\tsite\tdiagnosis\tage\tsex"]
    expected = {}
    (root / "func").mkdir(parents=True)
    for i, subject in enumerate(cohort.subject_id.tolist()):
        matrix = rng.standard_normal((30 + i, 6)) if series else cohort.fc[i]
        expected[subject] = pearson_fc(matrix) if series else cohort.fc[i]
        write_one(root / "func" / f"{subject}_atlas{suffix}", matrix)
        dx = ("HC", "MDD")[cohort.y[i]]
        lines.append(f"{subject}\t{cohort.site[i]}\t{dx}\t{20 + i}\t{'MF'[i % 2]}")
    (root / "participants.tsv").write_text("\n".join(lines) + "\n")
    return cohort, expected


def small(n: int = 20, n_rois: int = 5, sites: tuple[str, ...] = ("A", "B")) -> Cohort:
    rng = np.random.default_rng(0)
    series = rng.standard_normal((n, 40, n_rois))
    fc = np.stack([np.corrcoef(x.T) for x in series]).astype(np.float32)
    fc[:, np.arange(n_rois), np.arange(n_rois)] = 1
    return Cohort(
        name="small",
        fc=fc,
        y=np.arange(n) // len(sites) % 2,
        site=np.array([sites[i % len(sites)] for i in range(n)]),
        subject_id=np.array([f"s{i:02d}" for i in range(n)]),
        covariates={"age": np.arange(n, dtype=float)},
    )
