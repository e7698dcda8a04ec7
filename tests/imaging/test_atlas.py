"""AAL has exactly 116 ROIs here, its look-alikes are named, user atlases match their table."""

from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from fcforge.errors import ConfigError, DataError
from fcforge.imaging.atlas import Atlas, aal116, atlas_of_names
from fcforge.imaging.atlases import AAL116_VOXELS_SHA256, load_atlas


def test_aal_has_116_rois_in_code_order(aal: Atlas):
    assert aal.n_rois == 116
    assert aal.values.tolist() == list(range(1, 117))
    assert (aal.codes[0], aal.codes[-1]) == (2001, 9170)
    assert list(aal.codes) == sorted(aal.codes)
    assert aal.sha256 == AAL116_VOXELS_SHA256
    assert len(set(aal.roi_names)) == 116


def test_the_table_places_every_roi_where_the_volume_has_it(aal: Atlas):
    places = replace(aal, xyz=np.empty((0, 3))).places
    for roi in range(0, 116, 7):
        centre = places[roi]
        # The table's centroids come from the PCP's mask, which is aligned a little differently.
        assert np.linalg.norm(centre - aal.xyz[roi]) < 8
        if aal.roi_names[roi].endswith("_L"):
            assert centre[0] < 0


def test_systems_cover_all_rois_and_both_hemispheres_alike():
    atlas = aal116()
    assert len(set(atlas.systems)) == 9
    assert len(atlas.abbreviations) == len(set(atlas.abbreviations)) == 116
    by_name = dict(zip(atlas.roi_names, atlas.systems, strict=True))
    for name, system in by_name.items():
        if name.endswith("_L"):
            assert by_name[name[:-1] + "R"] == system


@pytest.mark.parametrize(("mm", "smallest"), [(3, 11), (2, 47)])
def test_no_roi_vanishes_on_scan_grids(aal: Atlas, mm: int, smallest: int):
    affine = np.diag([-mm, mm, mm, 1.0])
    affine[:3, 3] = [90, -126, -72]
    shape = {3: (61, 73, 61), 2: (91, 109, 91)}[mm]
    grid = aal.on_grid(shape, affine)
    assert np.bincount(grid[grid >= 0], minlength=116).min() == smallest


@pytest.mark.parametrize("mm", [(7.0, 8.0, 9.0), (6.0, 12.0, 4.0)])
@pytest.mark.parametrize("corner", [(-86.3, -121.9, -66.2), (-84.0, -119.0, -65.0)])
def test_on_grid_is_nilearns_nearest_neighbour_half_way_between_voxels_too(
    mm: tuple[float, ...], corner: tuple[float, ...], block: Atlas
):
    from nilearn.image import resample_img

    affine = np.diag([*mm, 1.0])
    affine[:3, 3] = corner
    shape = (22, 25, 19)
    ours = block.on_grid(shape, affine)
    theirs = resample_img(
        nib.load(block.image),
        affine,
        shape,
        interpolation="nearest",
        force_resample=True,
        copy_header=True,
    ).get_fdata()
    expected = np.where(theirs > 0, theirs / 10 - 1, -1)
    np.testing.assert_array_equal(ours, expected)


def _volume(path: Path, labels: list[float]) -> Path:
    data = np.zeros((6, 6, 6), dtype=np.float32)
    data.flat[: len(labels)] = labels
    nib.save(nib.Nifti1Image(data, np.eye(4)), path)
    return path


def test_a_changed_package_volume_is_refused(
    aal: Atlas, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fcforge.imaging.atlases.AAL116_VOXELS_SHA256", "0" * 64)
    with pytest.raises(DataError, match="has changed"):
        load_atlas("AAL116")


def test_user_atlas_follows_its_table(block: Atlas):
    assert block.name == "blocks"
    assert block.roi_names == tuple(f"Block{i}" for i in range(1, 7))
    assert block.values.tolist() == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ("10\tA\n20\tB\n30\tC", r"3 labels are not in the table \[40, 50, 60\]"),
        (
            "\n".join(f"{10 * i}\tR{i}" for i in range(1, 8)),
            r"1 listed ROIs are not in the volume",
        ),
        ("10\tA\n10\tB", "twice"),
    ],
)
def test_volume_and_table_must_agree(rows: str, match: str, blocks, tmp_path: Path):
    lut = tmp_path / "lut.tsv"
    lut.write_text("index\tname\n" + rows + "\n")
    with pytest.raises(DataError, match=match):
        load_atlas(str(blocks[0]), lut=lut)


def test_probabilistic_and_unknown_atlases(tmp_path: Path):
    with pytest.raises(DataError, match="whole numbers"):
        load_atlas(str(_volume(tmp_path / "p.nii", [0.2, 0.7, 1.0])))
    with pytest.raises(ConfigError, match="unknown atlas 'schaefer'"):
        load_atlas("schaefer")


def test_an_atlas_is_known_by_names_never_by_a_count():
    aal = aal116()
    assert atlas_of_names(aal.roi_names) is aal
    assert atlas_of_names([str(code) for code in aal.codes]) is aal
    assert atlas_of_names(aal.roi_names[::-1]) is None
    assert atlas_of_names([f"ROI{i}" for i in range(116)]) is None
    assert atlas_of_names(()) is None
