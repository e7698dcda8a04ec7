"""Denoising: equal to nilearn's masker, nilearn's names, every missing piece named."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from imaging_trees import TR, fmriprep_subject, write_confounds

from fcforge.core.errors import ConfigError, DataError
from fcforge.imaging.atlas import Atlas
from fcforge.imaging.denoise import (
    PRESETS,
    Denoise,
    clean_series,
    degrees_of_freedom,
    fmriprep_confounds,
    framewise_displacement,
    make_denoise,
)
from fcforge.imaging.extract import extract_run, subject_fc
from fcforge.imaging.layouts import find_sources
from fcforge.imaging.options import FCRequest

N = 160


def denoising(name: str, band=(0.01, 0.1), fd_threshold: float = 0.5) -> Denoise:
    """A method with the options that `fcforge fc` has by default."""
    return make_denoise(name, band, fd_threshold)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, aal_grid: np.ndarray) -> Path:
    root = tmp_path_factory.mktemp("fmriprep")
    fmriprep_subject(root, "01", aal_grid)
    return root


@pytest.mark.parametrize(
    "name", ["none", "simple", "compcor", "motion+wm_csf+global_signal"]
)
def test_roi_series_equal_nilearns_labels_masker(name: str, tree: Path, aal: Atlas):
    from nilearn.maskers import NiftiLabelsMasker

    denoise = denoising(name)
    (source,) = find_sources(FCRequest(tree, tree / "out", layout="fmriprep"))
    ours = extract_run(
        source, aal, FCRequest(tree, tree / "out", denoise=name, min_coverage=0.0)
    ).series
    confounds, kept = fmriprep_confounds(source.path, denoise)
    cosine = confounds is not None and "cosine00" in confounds
    masker = NiftiLabelsMasker(
        str(aal.image),
        resampling_target="data",
        detrend=True,
        standardize=None,
        high_pass=None if cosine else 0.01,
        low_pass=0.1,
        t_r=TR,
        keep_masked_labels=False,
    )
    theirs = masker.fit_transform(
        str(source.path), confounds=confounds, sample_mask=kept
    )
    assert ours.shape == theirs.shape == (N, 116)
    r = [np.corrcoef(ours[:, i], theirs[:, i])[0, 1] for i in range(116)]
    # nilearn resamples the 1 mm atlas with its own rounding at ties, so a few border voxels
    # of a ROI may differ; the signal may not.
    assert min(r) > 0.9
    assert np.median(r) > 0.9999


@pytest.mark.parametrize("name", [p for p in PRESETS if p != "none"])
def test_presets_are_nilearns(name: str, tree: Path):
    from nilearn.interfaces.fmriprep import load_confounds_strategy

    (source,) = find_sources(FCRequest(tree, tree / "out", layout="fmriprep"))
    path = source.path
    if name == "ica_aroma":  # only the name is looked at
        path = path.with_name(path.name.replace("preproc", "smoothAROMAnonaggr"))
    ours, kept = fmriprep_confounds(path, denoising(name))
    theirs, their_kept = load_confounds_strategy(str(path), denoise_strategy=name)
    assert list(ours.columns) == list(theirs.columns)
    np.testing.assert_allclose(ours, theirs)
    np.testing.assert_array_equal(
        np.arange(N) if kept is None else kept,
        np.arange(N) if their_kept is None else their_kept,
    )


def test_scrubbing_drops_the_jump_and_thresholds_are_recorded(tmp_path: Path, aal_grid):
    fmriprep_subject(tmp_path, "01", aal_grid)
    table = next(tmp_path.rglob("*confounds_timeseries.tsv"))
    write_confounds(table, np.random.default_rng(0), N, jumps=6)
    (source,) = find_sources(FCRequest(tmp_path, tmp_path / "out", layout="fmriprep"))
    denoise = denoising("motion+scrub", fd_threshold=0.9)
    _, kept = fmriprep_confounds(source.path, denoise)
    assert kept is not None
    assert not set(range(10, 16)) & set(kept.tolist())
    described = denoise.parameters
    assert described["fd_threshold"] == 0.9
    assert described["std_dvars_threshold"] == 1.5
    ask = FCRequest(tmp_path, tmp_path / "out", denoise="scrubbing", fd_threshold=3)
    assert ask.denoising.parameters["fd_threshold"] == 3
    alone = FCRequest(tmp_path, tmp_path / "out", fd_threshold=3)
    assert "fd_threshold" not in alone.denoising.parameters
    fd = framewise_displacement(table)
    assert np.isnan(fd[0])
    assert fd[10] == 1.2


def test_a_clean_signal_passes_and_a_confound_goes():
    import pandas as pd

    t = np.arange(200) * TR
    signal = np.sin(2 * np.pi * 0.05 * t)
    noise = np.random.default_rng(0).normal(size=200)
    fast = np.sin(2 * np.pi * 0.2 * t)
    series = np.stack([signal + 3 * noise + 2 * fast, np.full(200, 7.0)], axis=1)
    cleaned, report = clean_series(
        series, denoising("none"), TR, (pd.DataFrame({"noise": noise}), None)
    )
    assert np.corrcoef(series[:, 0], signal)[0, 1] < 0.3
    assert np.corrcoef(cleaned[:, 0], signal)[0, 1] > 0.93
    assert abs(np.corrcoef(cleaned[:, 0], noise)[0, 1]) < 0.02
    assert np.isnan(cleaned[:, 1]).all()  # a flat ROI is no signal
    assert report["Confounds"] == ["noise"]
    assert report["ButterworthHz"] == (0.01, 0.1)
    cosine = pd.DataFrame({"cosine00": np.cos(np.pi * np.arange(200) / 200)})
    for high_pass in (0.01, None):
        way = denoising("none", (high_pass, 0.1))
        _, report = clean_series(series, way, tr=TR, confounds_and_mask=(cosine, None))
        assert report["ButterworthHz"] == (None, 0.1)  # the cosines are the high-pass


def test_names_that_do_not_exist_and_empty_bands():
    with pytest.raises(ConfigError, match="Did you mean 'scrubbing'"):
        denoising("scrubing")
    with pytest.raises(ConfigError, match="unknown denoise method 'moton'"):
        denoising("moton+wm_csf")
    with pytest.raises(ConfigError, match="is empty"):
        denoising("simple", (0.2, 0.1))


def test_missing_confounds_file_and_column(tmp_path: Path, aal_grid):
    fmriprep_subject(tmp_path, "01", aal_grid)
    (source,) = find_sources(FCRequest(tmp_path, tmp_path / "out", layout="fmriprep"))
    table = next(tmp_path.rglob("*confounds_timeseries.tsv"))
    text = table.read_text()
    table.write_text(text.replace("white_matter", "wm"))
    with pytest.raises(DataError, match="missing confounds") as error:
        fmriprep_confounds(source.path, denoising("simple"))
    assert "\n" not in str(error.value)
    table.unlink()
    with pytest.raises(DataError, match=r"no \S+confounds_timeseries"):
        fmriprep_confounds(source.path, denoising("simple"))
    assert fmriprep_confounds(source.path, denoising("none")) == (None, None)


def test_too_few_volumes_and_no_tr():
    import pandas as pd

    x = np.random.default_rng(0).normal(size=(30, 3))
    table = pd.DataFrame(np.random.default_rng(1).normal(size=(30, 24))).add_prefix("c")
    with pytest.raises(DataError, match=r"30 volumes are .* 24 confounds"):
        clean_series(x, denoising("none"), tr=2.0, confounds_and_mask=(table, None))
    with pytest.raises(DataError, match="TR, which is unknown"):
        clean_series(x, denoising("none"), tr=None)


def test_a_scan_that_is_all_outliers_is_one_error(tmp_path: Path, aal_grid, aal: Atlas):
    fmriprep_subject(tmp_path, "01", aal_grid)
    table = next(tmp_path.rglob("*confounds_timeseries.tsv"))
    write_confounds(table, np.random.default_rng(0), N, jumps=N - 10)
    ask = FCRequest(tmp_path, tmp_path / "o", denoise="scrubbing")
    (source,) = find_sources(ask)
    with pytest.raises(DataError, match="0 volumes left after scrubbing"):
        extract_run(source, aal, ask)


def test_a_low_pass_beyond_half_the_sampling_rate_and_a_broken_motion_table(
    tmp_path: Path,
):
    x = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(DataError, match=r"0.1 Hz .* 5 s, not 6 s"):
        clean_series(x, denoising("none"), tr=6.0)
    (tmp_path / "FD.txt").write_text("0.1\nx\n")
    with pytest.raises(DataError, match=r"FD.txt: line 2 holds .x."):
        framewise_displacement(tmp_path / "FD.txt")
    (tmp_path / "FD2.txt").write_text("0.1\n0.3\n")
    assert framewise_displacement(tmp_path / "FD2.txt").tolist() == [0.1, 0.3]


def test_degrees_of_freedom_by_hand():
    # 200 volumes of 2 s: 0.01-0.1 Hz is 0.36 of the spectrum up to 0.25 Hz
    assert degrees_of_freedom(200, 24, 2.0, (0.01, 0.1)) == pytest.approx(
        200 * 0.36 - 26
    )
    assert degrees_of_freedom(200, 24, 2.0, (None, None)) == 174
    assert degrees_of_freedom(200, 24, None, (None, None)) == 174
    assert degrees_of_freedom(200, 0, 2.0, (0.05, None)) == pytest.approx(158)


@pytest.mark.parametrize("n", [120, 240, 480])
def test_degrees_of_freedom_are_those_of_noise(n):
    """The spread of correlations of filtered white noise is 1 / sqrt(dof), within a quarter."""
    rng = np.random.default_rng(n)
    table = pd.DataFrame(rng.normal(size=(n, 10))).add_prefix("c")
    x, report = clean_series(
        rng.normal(size=(n, 60)),
        denoising("none"),
        tr=2.0,
        confounds_and_mask=(table, None),
    )
    r = np.corrcoef(x, rowvar=False)[np.triu_indices(60, 1)]
    assert 1 / r.var() == pytest.approx(report["DegreesOfFreedom"], rel=0.25)


def test_a_short_scan_is_refused_with_its_degrees_of_freedom(
    tmp_path: Path, aal_grid, aal: Atlas
):
    """White noise of 60 volumes had mean |r| = 0.59 after the default denoising."""
    fmriprep_subject(tmp_path, "01", aal_grid, n_volumes=100)
    ask = FCRequest(tmp_path, tmp_path / "o", denoise="simple")
    sources = find_sources(ask)
    with pytest.raises(DataError, match=r"10 degrees .* 100 volumes; 15"):
        subject_fc(sources, aal, ask)
    assert subject_fc(sources, aal, replace(ask, min_dof=5)).dof == 10.0


def test_confounds_of_an_uncompressed_scan_are_found(tmp_path: Path, aal_grid):
    fmriprep_subject(tmp_path, "01", aal_grid, ending=".nii")
    (source,) = find_sources(FCRequest(tmp_path, tmp_path / "o"))
    confounds, _ = fmriprep_confounds(source.path, denoising("simple"))
    assert confounds is not None
    assert len(confounds) == N


@pytest.mark.data
def test_real_confounds_of_fmriprep(shared_data, tmp_path):
    """171 columns that nobody here made: every method finds its own among them."""
    for table in sorted(
        (shared_data / "halfpipe_sample").rglob("*confounds_timeseries.tsv")
    ):
        name = table.name.replace("desc-confounds_timeseries.tsv", "")
        for file in (table, table.with_suffix(".json")):
            shutil.copy(file, tmp_path / file.name)
        bold = tmp_path / f"{name}space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz"
        n = len(table.read_text().splitlines()) - 1
        sizes = {}
        for method in ("simple", "scrubbing", "compcor", "motion+wm_csf+global_signal"):
            confounds, _ = fmriprep_confounds(bold, denoising(method))
            assert confounds is not None
            assert len(confounds) == n
            assert np.isfinite(confounds.to_numpy()).all()
            sizes[method] = confounds.shape[1]
        assert sizes["motion+wm_csf+global_signal"] == 27
        assert sizes["simple"] > 26  # with the cosines
        assert sizes["compcor"] > 30
