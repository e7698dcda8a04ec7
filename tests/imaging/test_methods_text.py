"""The methods paragraph: it says what was done, and cites what it says."""

import re
from pathlib import Path
from typing import Any

import pytest

from fcforge.imaging.atlas import Atlas, aal116, names_only
from fcforge.imaging.denoise import COMPONENTS, PRESETS
from fcforge.imaging.layouts import LAYOUTS
from fcforge.imaging.methods_text import WORDS, describe_methods
from fcforge.imaging.options import FCRequest
from fcforge.imaging.sources import Source


def made(
    tool: str = "fmriprep",
    kind: str = "scan",
    made_by: str = "",
    atlas: Atlas | None = None,
    **options: Any,
) -> str:
    request = FCRequest(source=Path("in"), out=Path("out"), **options)
    denoised = tool in ("xcpd", "cpac", "dpabi", "halfpipe", "series")
    source = Source(Path("x.nii.gz"), kind, tool, {"sub": "01"}, denoised=denoised)
    return describe_methods(request, atlas or aal116(), source, made_by, (38, 40))


def test_the_default_of_fmriprep_in_full():
    text = made(made_by="fMRIPrep 23.2.1")
    assert text.startswith(
        "Scans had been preprocessed by fMRIPrep 23.2.1 (Esteban et al. 2019, "
        "doi:10.1038/s41592-018-0235-4). Series are of 116 ROIs (AAL116). The signal of each ROI "
        "was the mean over its voxels with a signal, inside the brain mask where there was one. "
        "An ROI of which less than 50% was covered counts as one without signal. Series were "
        "detrended and regressed on the confounds of fMRIPrep that nilearn's load_confounds "
        "chooses with strategy = ('high_pass', 'motion', 'wm_csf'), demean = True, motion = full, "
        "wm_csf = basic (Wang et al. 2024, doi:10.1371/journal.pcbi.1011942), by nilearn (Abraham "
        "et al. 2014, doi:10.3389/fninf.2014.00014). A Butterworth filter of order 5 kept "
        "frequencies above 0 Hz and below 0.1 Hz (0: no limit). Subjects left with fewer than 15 "
        "degrees of freedom by denoising were excluded. Functional connectivity (FC) is the "
        "Pearson correlation between the series of two ROIs; several runs of a subject were "
        "z-scored one by one and joined. The FC of an ROI without signal was set to 0. Subjects "
        "with more than 10% such ROIs were excluded; 38 of 40 have FC. Software: fcforge "
    )
    assert re.search(r"nilearn \d", text)


@pytest.mark.parametrize("tool", LAYOUTS)
@pytest.mark.parametrize("denoise", [*PRESETS, *COMPONENTS])
def test_nothing_is_left_to_fill_in(tool, denoise):
    assert "{" not in made(tool, denoise=denoise)


def test_thresholds_and_bands_are_those_asked_for():
    text = made(denoise="scrubbing", fd_threshold=0.3, low_pass=0.08, drop=4)
    assert "scrub = 5, std_dvars_threshold = 1.5, fd_threshold = 0.3" in text
    assert "wm_csf = full" in text
    assert "below 0.08 Hz" in text
    assert "The first 4 volumes were left out." in text
    text = made(denoise="motion+global_signal")
    assert "global_signal = basic" in text
    assert "above 0.01 Hz and below 0.1 Hz" in text
    text = made(denoise="none", high_pass=0, low_pass=0)
    assert "detrended and not regressed on confounds" in text
    assert "Butterworth" not in text


def test_scans_without_confounds_do_not_claim_any():
    text = made("nifti", denoise="simple")
    assert "not regressed on confounds" in text
    assert "above 0.01 Hz" in text


def test_series_of_another_tool_are_said_to_be_its():
    text = made(
        "xcpd", "series", made_by="XCP-D 0.10.0", atlas=names_only("Gordon", ("a", "b"))
    )
    assert text.startswith("Scans had been denoised by XCP-D 0.10.0 (Mehta")
    assert "Series are of 2 ROIs (Gordon)." in text
    assert "detrended" not in text
    assert "covered" not in text
    assert "degrees of freedom" not in text
    assert made("cpac", "series").startswith(
        "ROI time series had been made and denoised by cpac"
    )


def test_own_preprocessing_says_that_t1w_was_not_used():
    text = made(made_by="fcforge preprocess (fMRIPrep layout) 0.2.0")
    assert "T1-weighted images were not used" in text
    assert "Esteban" not in text


def test_every_layout_has_its_sentence():
    assert {*LAYOUTS, "fcforge"} <= set(WORDS)
