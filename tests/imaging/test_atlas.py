"""AAL has exactly 116 ROIs here, its look-alikes are named, user atlases match their table."""

import re
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from imaging_trees import roi_signals
from nilearn import datasets
from nilearn.maskers import NiftiMapsMasker
from nilearn.plotting import find_probabilistic_atlas_cut_coords
from sklearn.utils import Bunch

from fcforge.core.errors import ConfigError, DataError
from fcforge.imaging.atlas import (
    AAL116_VOXELS_SHA256,
    Atlas,
    aal116,
    atlas_of_names,
    families,
    load_atlas,
)
from fcforge.imaging.extract import roi_means
from fcforge.imaging.scan import open_scan


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
    monkeypatch.setattr("fcforge.imaging.atlas.AAL116_VOXELS_SHA256", "0" * 64)
    with pytest.raises(DataError, match="has changed"):
        load_atlas("AAL116")


def test_user_atlas_follows_its_table(block: Atlas):
    assert block.name == "blocks"
    assert block.roi_names == tuple(f"Block{i}" for i in range(1, 7))
    assert block.values.tolist() == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ("10\tA\n20\tB\n30\tC", "only one of them has the labels 40, 50, 60"),
        (
            "\n".join(f"{10 * i}\tR{i}" for i in range(1, 8)),
            r"only one of them has the labels 70",
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


AFFINE = np.diag([12.0, 12, 12, 1])
AFFINE[:3, 3] = [-90, -125, -71]
SHAPE = (15, 18, 15)


def labels(n: int) -> nib.Nifti1Image:
    data = np.zeros(SHAPE, dtype=np.int16)
    data.reshape(-1)[: 20 * n] = np.repeat(np.arange(1, n + 1), 20)
    return nib.Nifti1Image(data, AFFINE)


def maps(n: int) -> nib.Nifti1Image:
    """Overlapping bumps along y."""
    y = np.arange(SHAPE[1])[None, :, None, None]
    centre = np.linspace(2, SHAPE[1] - 3, n)[None, None, None, :]
    bump = np.exp(-(((y - centre) / 2.0) ** 2))
    data = np.broadcast_to(np.where(bump > 0.05, bump, 0), (*SHAPE, n))
    return nib.Nifti1Image(np.ascontiguousarray(data, dtype=np.float32), AFFINE)


@pytest.fixture
def asked(monkeypatch) -> list[tuple[str, dict]]:
    """Calls of nilearn's fetchers, which answer with small atlases."""
    calls: list[tuple[str, dict]] = []

    def schaefer(**options):
        n = 6
        names = [
            f"7Networks_{'LR'[i % 2]}H_{('Vis', 'Default')[i // 3]}_{i}"
            for i in range(n)
        ]
        lut = pd.DataFrame({"index": range(n + 1), "name": ["Background", *names]})
        return Bunch(maps=labels(n), labels=lut["name"].tolist(), lut=lut)

    def craddock(**options):
        parts = [np.asarray(labels(2 + (k == 19)).dataobj) for k in range(43)]
        return Bunch(maps=nib.Nifti1Image(np.stack(parts, axis=-1), AFFINE))

    def difumo(**options):
        table = pd.DataFrame(
            {
                "component": [1, 2, 3],
                "difumo_names": list("abc"),
                "yeo_networks7": list("xyx"),
            }
        )
        return Bunch(maps=maps(3), labels=table)

    def msdl(**options):
        return Bunch(maps=maps(4), labels=["L Aud", "R Aud", "Striate", "L DMN"])

    made = {
        "schaefer_2018": schaefer,
        "craddock_2012": craddock,
        "difumo": difumo,
        "msdl": msdl,
    }
    for name, answer in made.items():

        def fetch(name=name, answer=answer, **options):
            calls.append((name, options))
            return answer(**options)

        monkeypatch.setattr(datasets, f"fetch_atlas_{name}", fetch)
    return calls


def test_every_family_is_a_fetcher_of_nilearn():
    import inspect

    for family in families():
        fetch = getattr(datasets, f"fetch_atlas_{family['fetcher']}")
        asked = {*family.get("options", {}), family.get("number", "verbose")}
        assert asked <= set(inspect.signature(fetch).parameters), family
        assert re.fullmatch(family["name"], family["example"].lower())


def test_schaefer_by_name(asked):
    atlas = load_atlas("Schaefer200")
    assert asked[0][1] == {
        "n_rois": 200,
        "yeo_networks": 7,
        "resolution_mm": 2,
        "verbose": 0,
    }
    assert (atlas.name, atlas.n_rois) == ("Schaefer200", 6)
    assert atlas.roi_names[0] == "7Networks_LH_Vis_0"
    assert atlas.systems == ("Vis",) * 3 + ("Default",) * 3
    assert atlas.places.shape == (6, 3)
    assert len(atlas.sha256) == 64
    load_atlas("schaefer-1000 Yeo17")
    assert asked[1][1]["yeo_networks"] == 17


def test_cc200_is_one_of_43_solutions(asked):
    atlas = load_atlas("CC200")
    assert asked[0][1]["homogeneity"] == "temporal"
    assert atlas.roi_names == ("ROI_1", "ROI_2", "ROI_3")


def test_maps_have_names_and_no_labels(asked):
    atlas = load_atlas("DiFuMo64")
    assert asked[0][1]["dimension"] == 64
    assert atlas.probabilistic
    assert (atlas.roi_names, atlas.systems) == (("a", "b", "c"), ("", "", ""))
    msdl = load_atlas("MSDL")
    assert msdl.roi_names == ("L Aud", "R Aud", "Striate", "L DMN")
    assert msdl.places.shape == (4, 3)
    np.testing.assert_allclose(
        msdl.places, find_probabilistic_atlas_cut_coords(maps(4))
    )


def test_signals_of_maps_are_nilearns(asked, tmp_path: Path):
    atlas = load_atlas("MSDL")
    rng = np.random.default_rng(0)
    weights = np.asarray(maps(4).dataobj)
    data = 1000 * (weights.sum(-1) > 0)[..., None] + weights @ roi_signals(rng, 60, 4).T
    data = (data + rng.normal(scale=0.1, size=data.shape)).astype(np.float32)
    image = nib.Nifti1Image(data, AFFINE)
    image.set_sform(AFFINE, 4)
    nib.save(image, tmp_path / "s.nii.gz")
    series, coverage, carpet, notes, _ = roi_means(
        open_scan(tmp_path / "s.nii.gz"), atlas, None, 0.5
    )
    theirs = NiftiMapsMasker(
        maps(4), resampling_target="data", standardize=None, detrend=False
    ).fit_transform(str(tmp_path / "s.nii.gz"))
    np.testing.assert_allclose(series, theirs, rtol=2e-3)
    np.testing.assert_allclose(coverage, 1.0, atol=1e-3)
    assert carpet.shape[1] == 60
    assert notes["NaNVoxels"] == 0


def test_without_a_network_it_says_what_to_copy(monkeypatch):
    def fails(**options):
        raise OSError("no route to host")

    monkeypatch.setattr(datasets, "fetch_atlas_msdl", fails)
    with pytest.raises(DataError, match=r"'MSDL' .*fetch_atlas_msdl"):
        load_atlas("MSDL")


@pytest.mark.parametrize("name", ["Schaefer150", "Gordon", "schaefer"])
def test_unknown_names_list_the_known(name):
    known = "Schaefer400.*CC400.*MSDL"
    with pytest.raises(ConfigError, match=f"unknown atlas '{name}'.*{known}"):
        load_atlas(name)


FREESURFER = """#$Id: FreeSurferColorLUT.txt
#No. Label Name:                            R   G   B   A

0   Unknown                                 0   0   0   0
1   Left-Cerebral-Exterior                  70  130 180 0
2   Left-Cerebral-White-Matter              245 245 245 0
3   Left-Cerebral-Cortex                    205 62  78  0
"""
SCHAEFER = (
    "1\t7Networks_LH_Vis_1\t120\t18\t131\t0\n2\t7Networks_LH_Vis_2\t120\t18\t132\t0\n"
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (FREESURFER, ("Left-Cerebral-Exterior", "Left-Cerebral-White-Matter")),
        (SCHAEFER, ("7Networks_LH_Vis_1", "7Networks_LH_Vis_2")),
    ],
)
def test_luts_of_freesurfer_and_schaefer(text, names, tmp_path: Path):
    nib.save(labels(2), tmp_path / "two.nii.gz")
    (tmp_path / "lut.txt").write_text(text)
    atlas = load_atlas(str(tmp_path / "two.nii.gz"), lut=tmp_path / "lut.txt")
    assert atlas.roi_names == names
    nib.save(labels(5), tmp_path / "five.nii.gz")
    with pytest.raises(DataError, match=r"only one of them has the labels .*4, 5"):
        load_atlas(str(tmp_path / "five.nii.gz"), lut=tmp_path / "lut.txt")
