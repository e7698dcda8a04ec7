"""The methods paragraph: it says what was done, and cites what it says."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from fcforge.imaging.atlas import Atlas, aal116, names_only
from fcforge.imaging.denoise import COMPONENTS, PRESETS
from fcforge.imaging.layouts import LAYOUTS
from fcforge.imaging.methods_text import WORDS, Methods, describe_methods
from fcforge.imaging.options import FCRequest
from fcforge.imaging.raw.corrections import plan_route
from fcforge.imaging.sources import Source

WORKS = WORDS["works"]


def made(
    tool: str = "fmriprep",
    kind: str = "scan",
    made_by: str = "",
    atlas: Atlas | None = None,
    **options: Any,
) -> Methods:
    request = FCRequest(source=Path("in"), out=Path("out"), **options)
    denoised = tool in ("xcpd", "cpac", "dpabi", "halfpipe", "series")
    source = Source(Path("x.nii.gz"), kind, tool, {"sub": "01"}, denoised=denoised)
    return describe_methods(request, atlas or aal116(), source, made_by, (38, 40))


def test_the_default_of_fmriprep_in_full():
    found = made(made_by="fMRIPrep 23.2.1")
    assert found.text == (
        "Scans had been preprocessed by fMRIPrep 23.2.1 [1]. The signal of each of 116 ROIs "
        "(AAL116 [2]) was the mean over its voxels with a signal, inside the brain mask where "
        "there was one. Series were detrended and regressed on discrete cosines "
        "slower than 128 s, 24 motion regressors (six parameters, derivatives and the squares "
        "of both [3]), the mean signals of white matter and cerebrospinal fluid [4], by "
        "nilearn [5]. "
        "Frequencies below 0.1 Hz were kept (Butterworth filter of order 5). Functional "
        "connectivity (FC) is the Pearson correlation between the series of two ROIs; several "
        "runs of a subject were z-scored one by one and joined. The FC of an ROI without "
        "signal or of which less than 50% was covered was set to 0. Subjects with more than "
        "10% such ROIs, or left with fewer than 15 degrees of freedom by denoising were "
        "excluded; 38 of 40 have FC."
    )
    works = (
        "esteban2019",
        "tzourio2002",
        "satterthwaite2013",
        "wang2024",
        "abraham2014",
    )
    assert found.references == tuple(WORKS[key] for key in works)
    assert "nilearn" in found.software


@pytest.mark.parametrize("tool", LAYOUTS)
@pytest.mark.parametrize("denoise", [*PRESETS, *COMPONENTS])
def test_every_number_in_the_text_has_its_reference(tool, denoise):
    found = made(tool, denoise=denoise)
    cited = {int(n) for n in re.findall(r"\[(\d+)\]", found.text)}
    assert cited == set(range(1, len(found.references) + 1))
    assert "{" not in found.text
    assert "[a-z" not in found.text


def test_thresholds_and_bands_are_those_asked_for():
    text = made(denoise="scrubbing", fd_threshold=0.3, low_pass=0.08, drop=4).text
    assert "above 0.3 mm" in text
    assert "DVARS above 1.5, and stretches of fewer than 5 volumes" in text
    assert "cerebrospinal fluid with derivatives and squares" in text
    assert "Frequencies below 0.08 Hz" in text
    assert "The first 4 volumes were left out." in text
    text = made(denoise="motion+global_signal").text
    assert "the global signal" in text
    assert "Frequencies above 0.01 Hz and below 0.1 Hz" in text
    text = made(denoise="none", high_pass=0, low_pass=0).text
    assert "detrended and not regressed on confounds" in text
    assert "Butterworth" not in text
    assert "denoised by ICA-AROMA" in made(denoise="ica_aroma").text


def test_scans_without_confounds_do_not_claim_any():
    text = made("nifti", denoise="simple").text
    assert "not regressed on confounds" in text
    assert "Frequencies above 0.01 Hz" in text


def test_series_of_another_tool_are_said_to_be_its():
    text = made(
        "xcpd", "series", made_by="XCP-D 0.10.0", atlas=names_only("Gordon", ("a", "b"))
    ).text
    assert text.startswith(
        "Scans had been denoised by XCP-D 0.10.0 [1]. Series are of 2 ROIs (Gor"
    )
    assert "detrended" not in text
    assert "covered" not in text
    assert "degrees of freedom" not in text
    assert made("cpac", "series").text.startswith(
        "ROI time series had been made and denoised by C-PAC"
    )


def test_own_preprocessing_says_that_t1w_was_not_used():
    text = made(made_by="fcforge preprocess (fMRIPrep layout) 0.2.0").text
    assert "T1-weighted images were not used" in text
    assert "Esteban" not in " ".join(made(made_by="fcforge preprocess").references)


def test_own_preprocessing_names_the_steps_of_the_sidecar(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tools = {"slice_timing": "slicetimer", "motion": "mcflirt", "registration": "spm12"}
    steps = {step: {"Tool": tool} for step, tool in tools.items()}
    side = {"Steps": {**steps, "distortion": "not done"}}
    (tmp_path / "x.json").write_text(json.dumps(side))
    found = made(made_by="fcforge preprocess 0.2.0")
    assert found.text.startswith(
        "Raw scans had been brought to MNI space by fcforge preprocess: slice timing by FSL's "
        "slicetimer, rigid realignment by FSL's MCFLIRT [1], normalisation of the mean functional "
        "image by SPM12 [2]; T1-weighted images were not used."
    )
    assert found.references[:2] == (WORKS["jenkinson2002"], WORKS["ashburner2005"])


@pytest.mark.parametrize(
    ("steps", "words"),
    [(["motion"], "its sidecars say how"), ({"x\x1b[2J": {"Tool": "y"}}, "x?[2J y")],
)
def test_steps_that_another_program_wrote(steps, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.json").write_text(json.dumps({"Steps": steps}))
    assert words in made(made_by="fcforge preprocess 0.2.0").text


def test_every_step_and_tool_has_its_words(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    plans = [plan_route("pip"), plan_route("fsl")]
    known = {f"{step} {tool}" for plan in plans for step, tool in plan.items()}
    assert known == set(WORDS["steps"])


@pytest.mark.parametrize(
    ("name", "cited"),
    [
        ("Schaefer400Yeo17", "Schaefer"),
        ("HarvardOxfordSub", "Desikan"),
        ("CC200", "Craddock et al. (2012)"),
        ("DiFuMo256", "Dadi"),
        ("MSDL", "Varoquaux"),
        ("Destrieux", "Destrieux"),
    ],
)
def test_named_atlases_are_cited(name, cited):
    found = made(atlas=names_only(name, ("a", "b")))
    assert any(work.startswith(cited) for work in found.references)


def test_an_own_atlas_is_named_and_not_cited():
    found = made(atlas=names_only("ccMine", ("a", "b")))
    assert "(ccMine)" in found.text
    assert not any("Craddock" in work for work in found.references)


def test_tables_are_whole():
    assert {*LAYOUTS, "fcforge"} == set(WORDS["tools"])
    assert set(COMPONENTS) == set(WORDS["regressors"]) | {"scrub", "ica_aroma"}


def test_every_work_is_cited_by_something():
    text = " ".join(
        v for name, table in WORDS.items() for v in table.values() if name != "works"
    )
    cited = {
        *re.findall(r"\[?([a-z]+\d{4})\]?", text),
        "abraham2014",
        "wang2024",
        "power2012",
    }
    assert cited | {"pruim2015", "power2014"} == set(WORKS)


def test_every_work_has_its_doi():
    assert all(
        re.search(r" https://doi\.org/10\.\d{4}/\S+$", work) for work in WORKS.values()
    )


def test_markdown_lists_the_works():
    text = Methods("Done [1].", "Software: x 1.", ("A work.",)).markdown()
    assert text.startswith(
        "# Methods\n\nDone [1].\n\nSoftware: x 1.\n\n## References\n\n1. A work.\n"
    )
    assert "CC0" in text
