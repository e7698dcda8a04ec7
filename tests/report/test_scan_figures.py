"""Figures of a run: mosaic in any orientation, power spectrum, coverage."""

import base64
import io
import json
import re

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from fcforge.imaging.atlas import load_atlas, names_only
from fcforge.report import scan_figures
from fcforge.report.scan_figures import OUTLINE, atlas_mosaic, coverage_plot, spectrum

SHAPE = (10, 12, 8)
AFFINE = np.array([[8.0, 0, 0, -40], [0, 8, 0, -48], [0, 0, 8, -32], [0, 0, 0, 1]])


def pixels(html: str) -> np.ndarray:
    data = re.search(r"base64,([^\"]+)", html)[1]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


def labels_atlas(folder, data: np.ndarray):
    path = folder / "atlas.nii.gz"
    image = nib.Nifti1Image(data, AFFINE)
    image.set_sform(AFFINE, 4)
    nib.save(image, path)
    return load_atlas(str(path))


@pytest.fixture
def mean() -> np.ndarray:
    """Brighter to the right, the front and the top."""
    x, y, z = np.meshgrid(*map(np.arange, SHAPE), indexing="ij")
    return 1.0 + x + 2.0 * y + 3.0 * z


def test_a_mosaic_does_not_depend_on_the_order_of_voxels(tmp_path, mean):
    labels = np.zeros(SHAPE, dtype=np.int16)
    labels[2:5, 3:9, 2:6], labels[5:8, 3:9, 2:6] = 1, 2
    atlas = labels_atlas(tmp_path, labels)
    expected = pixels(atlas_mosaic(mean, AFFINE, atlas))
    flip = np.diag([-1.0, 1, 1, 1])
    flip[0, 3] = SHAPE[0] - 1
    flipped = atlas_mosaic(mean[::-1], AFFINE @ flip, atlas)
    np.testing.assert_array_equal(pixels(flipped), expected)
    swap = np.eye(4)[[1, 0, 2, 3]]
    swapped = atlas_mosaic(mean.transpose(1, 0, 2), AFFINE @ swap, atlas)
    np.testing.assert_array_equal(pixels(swapped), expected)
    first = expected[: expected.shape[0] // 3, : scan_figures.TILE_PX].astype(int)
    grey = first[(first != OUTLINE).any(axis=2)]
    assert len(grey) < first.shape[0] * first.shape[1]  # borders are drawn
    rows = first[..., 0]
    assert rows[2, -2] > rows[-2, 2]  # front right is brighter than back left


def test_the_place_of_every_slice_shows(tmp_path, mean):
    labels = np.ones(SHAPE, dtype=np.int16)
    labels[5:] = 2
    page = str(atlas_mosaic(mean, AFFINE, labels_atlas(tmp_path, labels)))
    cells = json.loads(
        re.search(r'data-cells="([^"]+)"', page)[1].replace("&#34;", '"')
    )
    assert [len(row) for row in cells["texts"]] == [7, 7, 7]
    assert cells["texts"][0][3] in ("axial, z = 0 mm", "axial, z = \N{MINUS SIGN}8 mm")
    assert cells["texts"][2][0].startswith("sagittal, x = \N{MINUS SIGN}")


def test_borders_of_maps_lie_where_another_is_larger(tmp_path, mean):
    maps = np.zeros((*SHAPE, 2), dtype=np.float32)
    maps[2:6, 3:9, 2:6, 0] = 1
    maps[5:8, 3:9, 2:6, 1] = 2
    image = pixels(atlas_mosaic(mean, AFFINE, labels_atlas(tmp_path, maps)))
    assert (image == OUTLINE).all(axis=2).any()


def test_an_atlas_without_a_volume_has_no_borders(mean):
    image = pixels(atlas_mosaic(mean, AFFINE, names_only("Mine", ("A", "B"))))
    assert not (image == OUTLINE).all(axis=2).any()
    empty = atlas_mosaic(np.full(SHAPE, np.nan), AFFINE, names_only("Mine", ("A", "B")))
    assert pixels(empty).max() == 0


def test_power_lies_at_the_frequency_of_a_wave():
    time = 2.0 * np.arange(200)
    wave = np.sin(2 * np.pi * 0.05 * time)
    series = np.column_stack([wave, 1e6 * wave, np.full(200, np.nan), np.ones(200)])
    frequency, share = spectrum(series, 2.0)
    assert frequency[np.argmax(share)] == pytest.approx(0.05, abs=0.004)
    assert share.sum() == pytest.approx(1)
    cycles, same = spectrum(series, None)
    np.testing.assert_allclose(cycles, 2.0 * frequency)
    np.testing.assert_allclose(same, share)
    assert spectrum(series[:, 2:], 2.0)[1].sum() == 0  # no ROI has a signal


def test_coverage_without_places_is_drawn_as_bars():
    atlas = names_only("Mine", ("A", "B<b>"))
    (bars,) = coverage_plot(np.array([1.0, 0.25]), None, atlas)
    assert "<svg" in bars
    assert "B<b>" not in bars
    assert "B&lt;b&gt;" in bars


def test_volumes_are_counted_from_one_on_the_axis_and_at_the_pointer():
    page = str(scan_figures.motion_plot(np.linspace(0, 1, 41)))
    labels = re.findall(r"<text[^>]*>\s*(?:<[^>]+>)*([^<]+)<", page)
    assert {"1", "11", "21", "31", "41"} <= {label.strip() for label in labels}
    assert "&#34;first&#34;:1," in page
