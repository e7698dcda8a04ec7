"""CIFTI: parcels by name, dense series by parcellation, and every mismatch named."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from imaging_calls import fc_command
from imaging_cifti import (
    AFFINE,
    N_VERTICES,
    PARCELS,
    VERTICES,
    VOLUME,
    dense_values,
    dlabel,
    dtseries,
    keys,
    models,
    pconn,
    ptseries,
    xcpd_cifti_tree,
)
from imaging_trees import describe, roi_signals, write_confounds

from fcforge.core.errors import DataError
from fcforge.imaging import cifti
from fcforge.imaging.atlas import names_only
from fcforge.imaging.series import checked_matrix, match_atlas, match_matrix

FOUR_S = [f"LH_Vis_{i}" for i in range(80)] + [f"RH_Default_{i}" for i in range(76)]


def fc_of(out: Path, subject: str = "01") -> pd.DataFrame:
    (path,) = (out / f"sub-{subject}").rglob("*_relmat.tsv")
    return pd.read_csv(path, sep="\t", index_col="Node")


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.mark.parametrize("with_series", [True, False])
def test_the_4s156parcels_of_xcpd_just_work(with_series, tmp_path, lines):
    root = tmp_path / "xcpd"
    xcpd_cifti_tree(root, FOUR_S, series=with_series)
    ask = {"source": root, "atlas": "4S156Parcels", "say": lines.append}
    assert fc_command(out=tmp_path / "out", **ask) == 0, lines
    found = fc_of(tmp_path / "out")
    assert list(found.columns) == list(found.index) == FOUR_S
    values = roi_signals(np.random.default_rng([19, 0]), 80, 156)
    np.testing.assert_allclose(found, np.corrcoef(values.T), atol=1e-5)
    people = pd.read_csv(tmp_path / "out" / "participants.tsv", sep="\t")
    assert (people["mean_fd"] > 0).all()
    side = json.loads(next((tmp_path / "out").rglob("*_relmat.json")).read_text())
    assert side["Volumes"] == (80 if with_series else None)
    assert len(side["Atlas"]["SHA256"]) == 64
    assert len([*(tmp_path / "out").rglob("*_timeseries.tsv")]) == 4 * with_series
    methods = (tmp_path / "out" / "methods.md").read_text()
    assert ("correlation matrices as they were" in methods) != with_series
    # another atlas, and none of that name
    assert fc_command(out=tmp_path / "o2", **{**ask, "atlas": "Gordon"}) == 0
    assert list(fc_of(tmp_path / "o2").columns) == list(PARCELS)
    assert fc_command(out=tmp_path / "o3", **{**ask, "atlas": "Tian"}) == 2
    assert "are of: 4S156Parcels, Gordon" in lines[-1]


def test_a_subject_with_other_parcels_of_the_same_number_fails_by_name(tmp_path, lines):
    root = tmp_path / "in"
    xcpd_cifti_tree(root, FOUR_S, n=3)
    (two,) = (root / "sub-02").rglob("*4S156Parcels*ptseries.nii")
    values = roi_signals(np.random.default_rng(1), 80, 156)
    ptseries(two, [f"Other_{'LR'[i % 2]}_{i}" for i in range(156)], values)
    (three,) = (root / "sub-03").rglob("*4S156Parcels*ptseries.nii")
    ptseries(three, FOUR_S[::-1], values)  # the same parcels in another order
    ask = {"source": root, "atlas": "4S156Parcels", "say": lines.append}
    assert fc_command(out=tmp_path / "out", **ask) == 1
    (failed,) = (line for line in lines if "failed: " in line)
    assert "sub-02" in failed
    assert "Other_L_0, Other_R_1, Other_L_2 and 153 more are not in atlas" in failed
    found = fc_of(tmp_path / "out", "03")
    expected = np.corrcoef(values.T)[::-1, ::-1]
    np.testing.assert_allclose(found.loc[FOUR_S, FOUR_S], expected, atol=1e-5)


@pytest.mark.parametrize("tool", ["fMRIPrep", "XCP-D", ""])
def test_dense_series_by_a_parcellation(tool, tmp_path, lines):
    root = tmp_path / "in"
    if tool:
        describe(root, tool)
    func = root / "sub-01" / "func"
    values, signals = dense_values(np.random.default_rng(3), 150)
    desc = "_desc-denoised" if tool == "XCP-D" else ""
    scan = func / f"sub-01_task-rest_space-fsLR_den-91k{desc}_bold.dtseries.nii"
    dtseries(scan, values)
    write_confounds(
        func / "sub-01_task-rest_desc-confounds_timeseries.tsv",
        np.random.default_rng(0),
        150,
    )
    atlas = dlabel(tmp_path / "atlas-Five_space-fsLR_den-91k_dseg.dlabel.nii")
    ask = {"source": root, "atlas": str(atlas), "say": lines.append}
    if tool != "XCP-D":
        ask |= {"denoise": "motion" if tool else "none", "high_pass": 0, "low_pass": 0}
    assert fc_command(out=tmp_path / "out", **ask) == 0, lines
    found = fc_of(tmp_path / "out")
    assert tuple(found.columns) == PARCELS
    assert np.abs(found - np.corrcoef(signals.T)).max().max() < (
        0.3 if tool == "fMRIPrep" else 0.01
    )
    (series,) = (tmp_path / "out").rglob("*_atlas-Five_stat-mean_timeseries.json")
    side = json.loads(series.read_text())
    assert side["Coverage"] == [1.0] * 5
    assert side["RepetitionTime"] == 2.0
    assert ("trans_x" in side.get("Confounds", ())) == (tool == "fMRIPrep")
    # an atlas of volumes has advice instead
    assert fc_command(out=tmp_path / "o2", **{**ask, "atlas": "AAL116"}) == 2
    assert "--atlas FILE.dlabel.nii" in lines[-1]


def test_means_and_coverage_of_parcels(tmp_path):
    values, _ = dense_values(np.random.default_rng(3), 40)
    values[:, 1] = 5.0  # constant
    values[3, 2] = np.nan
    path = dtseries(tmp_path / "a.dtseries.nii", values)
    atlas = cifti.load_parcellation(dlabel(tmp_path / "five.dlabel.nii"))
    found = cifti.parcel_means(path, atlas, 0.5)
    inside = keys() == 3
    inside[[1, 2]] = False
    np.testing.assert_allclose(
        found.series[:, 0], values.astype("f4")[:, inside].mean(axis=1), rtol=1e-5
    )
    assert found.coverage[0] == pytest.approx(22 / 24)
    assert (found.n_nan, found.n_inside) == (1, int((keys() != 0).sum()))
    assert np.isnan(cifti.parcel_means(path, atlas, 0.95).series[:, 0]).all()


def test_a_series_without_the_voxels_of_the_parcellation(tmp_path):
    """fMRIPrep's series may lack a structure or vertices; its parcels lose coverage, none moves."""
    axis = nib.cifti2.BrainModelAxis
    kept = VERTICES[: len(VERTICES) // 2]
    cortex = axis.from_surface(kept, N_VERTICES, "CortexRight")
    cortex = cortex + axis.from_surface(VERTICES, N_VERTICES, "CortexLeft")
    values = np.random.default_rng(0).normal(size=(30, len(cortex)))
    path = dtseries(tmp_path / "a.dtseries.nii", values, cortex)
    atlas = cifti.load_parcellation(dlabel(tmp_path / "five.dlabel.nii"))
    found = cifti.parcel_means(path, atlas, 0.5)
    np.testing.assert_array_equal(found.coverage, [1, 1, 1, 0, 0])
    np.testing.assert_allclose(
        found.series[:, 2], values[:, 1 : len(kept)].mean(axis=1), rtol=1e-5, atol=1e-6
    )


def test_another_surface_or_volume_is_refused(tmp_path):
    values, _ = dense_values(np.random.default_rng(3), 20)
    atlas = cifti.load_parcellation(dlabel(tmp_path / "five.dlabel.nii"))
    other = dtseries(tmp_path / "a.dtseries.nii", values, models(VERTICES, 200))
    with pytest.raises(DataError, match=r"200 vertices here and 100 vertices in five"):
        cifti.parcel_means(other, atlas, 0.5)
    axis = nib.cifti2.BrainModelAxis
    mask = np.zeros(VOLUME, dtype=bool)
    mask[2:4, 2:4, 2:4] = True
    left = axis.from_surface(VERTICES, N_VERTICES, "CortexLeft")
    right = axis.from_surface(VERTICES, N_VERTICES, "CortexRight")
    moved = AFFINE.copy()
    moved[0, 3] = 8
    thalamus = axis.from_mask(mask, "ThalamusLeft", moved)
    other = dtseries(tmp_path / "b.dtseries.nii", values, left + right + thalamus)
    with pytest.raises(DataError, match="THALAMUS_LEFT has volume"):
        cifti.parcel_means(other, atlas, 0.5)


def test_damaged_and_mislabelled_files_are_named(tmp_path):
    values, _ = dense_values(np.random.default_rng(3), 400)
    atlas = cifti.load_parcellation(dlabel(tmp_path / "five.dlabel.nii"))
    whole = dtseries(tmp_path / "a.dtseries.nii", values).read_bytes()
    for keep in (10, 1000, len(whole) // 2, len(whole) - 4):
        cut = tmp_path / "cut.dtseries.nii"
        cut.write_bytes(whole[:keep])
        with pytest.raises(DataError, match=r"cut.dtseries.nii.*(readable|truncated)"):
            cifti.parcel_means(cut, atlas, 0.5)
    (tmp_path / "b.ptseries.nii").write_bytes(whole)
    with pytest.raises(DataError, match="holds SeriesAxis x BrainModelAxis, not parc"):
        cifti.read_parcel_series(tmp_path / "b.ptseries.nii")
    volume = tmp_path / "c.ptseries.nii"
    nib.save(nib.Nifti1Image(np.zeros((3, 3, 3, 4), dtype="f4"), np.eye(4)), volume)
    with pytest.raises(
        DataError, match=r"c.ptseries.nii: (the file holds|this is not a readable)"
    ):
        cifti.read_parcel_series(volume)
    twice = ptseries(tmp_path / "d.ptseries.nii", ["a", "a"], np.zeros((4, 2)))
    with pytest.raises(DataError, match="names a parcel twice: a"):
        cifti.read_parcel_series(twice)
    one = dlabel(tmp_path / "one.dlabel.nii", np.where(keys() == 3, 3, 0))
    with pytest.raises(DataError, match="1 parcels"):
        cifti.load_parcellation(one)
    strange = dlabel(tmp_path / "two.dlabel.nii", np.where(keys() == 3, 99, keys()))
    with pytest.raises(DataError, match="labels 99 have no name"):
        cifti.load_parcellation(strange)


def test_gifti_is_refused_by_name_with_advice(tmp_path, lines):
    describe(tmp_path / "in", "fMRIPrep")
    func = tmp_path / "in" / "sub-01" / "func"
    func.mkdir(parents=True)
    (func / "sub-01_task-rest_hemi-L_space-fsaverage5_bold.func.gii").touch()
    ask = {"source": tmp_path / "in", "out": tmp_path / "out", "say": lines.append}
    assert fc_command(**ask) == 2
    assert "GIFTI surface file, which is not read" in lines[-1]
    assert "--cifti-output 91k" in lines[-1]
    dtseries(func / "sub-01_space-fsLR_den-91k_bold.dtseries.nii", np.ones((9, 108)))
    assert fc_command(**ask, atlas="lh.label.gii") == 2
    assert "--atlas FILE.dlabel.nii" in lines[-1]


def test_a_matrix_is_one_of_correlations(tmp_path):
    fc = np.corrcoef(np.random.default_rng(0).normal(size=(3, 50)))
    path = pconn(tmp_path / "a.pconn.nii", ["a", "b", "c"], fc)
    atlas = names_only("Mine", ("c", "a", "b", "d"))
    got = match_matrix(cifti.read_parcel_matrix(path), atlas)
    assert np.isnan(got[3]).all()
    whole, empty = checked_matrix(got, atlas.roi_names)
    assert whole[0, 1] == pytest.approx(fc[2, 0])
    assert list(empty) == [False, False, False, True]
    np.testing.assert_array_equal(whole[3], [0, 0, 0, 1])
    for broken, why in (
        (np.arctanh(np.clip(fc, -0.9, 0.9)) * 2 + 1, "is it Fisher z"),
        (np.where(np.eye(3, k=1), 0.1, fc), "not symmetric"),
        (np.where([[0, 1, 0], [1, 0, 0], [0, 0, 0]], np.nan, fc), "some"),
    ):
        with pytest.raises(DataError, match=why):
            checked_matrix(broken, "abc")


def test_names_of_another_atlas_are_never_taken_by_position(aal):
    values = np.random.default_rng(0).normal(size=(9, 116))
    numbered = tuple(f"V{i}" for i in range(116))
    np.testing.assert_array_equal(match_atlas((values, numbered), aal), values)
    order = np.random.default_rng(1).permutation(116)
    shuffled = tuple(aal.roi_names[i].replace("_", " ").lower() for i in order)
    np.testing.assert_array_equal(
        match_atlas((values, shuffled), aal)[:, order], values
    )
    for names in (
        tuple(f"Area {'LR'[i % 2]} {i}" for i in range(116)),
        (*aal.roi_names[:-1], "Pons"),
        (*aal.roi_names[:-1], aal.roi_names[0]),
    ):
        with pytest.raises(DataError, match=r"atlas AAL116|twice"):
            match_atlas((values, names), aal)
