"""Bad data of every kind: one clear error from `check` and from `run`, and nothing written."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from fcforge.data.arrays import in_words_of_arrays
from fcforge.data.checks import data_warnings
from fcforge.data.edges import upper_from_fc
from fcforge.data.simulated import simulate
from real_runs import Answer, fcforge

R = 6
Arrays = dict[str, np.ndarray]


def good() -> Arrays:
    cohort = simulate(n_rois=R, n_sites=2, scale=0.12, seed=2)
    return {
        "fc": cohort.fc.copy(),
        "label": cohort.y.copy(),
        "site": np.array(["A" if s == "Sim-NYU" else "B" for s in cohort.site]),
        "subject_id": np.array([f"s{i:02d}" for i in range(len(cohort))]),
    }


def config_for(path: Path) -> Path:
    config = path.parent / "e.toml"
    config.write_text(
        f'[dataset]\nname = "folder"\npath = "{path}"\n[training]\nepochs = 1\n'
        '[[learner]]\nmethod = "finetune"\nmodel = "linear"\n'
    )
    return config


def one_error(answer: Answer) -> None:
    """No traceback; the error starts a line of stderr."""
    assert "Traceback" not in answer.err + answer.out
    assert sum(line.startswith("error: ") for line in answer.err.splitlines()) == 1


def refused(path: Path, *says: str, code: int = 1) -> None:
    """`check` and `run` both refuse `path`, say why, and leave no run folder.

    A dataset that can be read is judged by `check` (exit code 1); one that cannot is an error (2).
    """
    for target in (path, config_for(path)):
        answer = fcforge("check", target)
        assert answer.code == code, answer
        said = answer.err if code == 2 else answer.out
        for words in says:
            assert words in said, said
        if code == 2:
            one_error(answer)
        else:
            assert "nothing would be trained" in said
    out = path.parent / "run"
    answer = fcforge(
        "run", config_for(path), "--out", out, "--jobs", 1, "--device", "cpu"
    )
    assert (answer.code, answer.out) == (2, "")
    one_error(answer)
    for words in says:
        assert words in answer.err, answer.err
    assert not out.exists()


def write(tmp_path: Path, arrays: Arrays) -> Path:
    path = tmp_path / "data.npz"
    np.savez(path, allow_pickle=False, **arrays)
    return path


def both(matrix: np.ndarray, i: int, j: int, value: float) -> None:
    matrix[i, j] = matrix[j, i] = value


def test_the_good_data_are_good(tmp_path):
    assert fcforge("check", write(tmp_path, good())).code == 0


# -- one .npz ----------------------------------------------------------------------------------
def nan_roi(a: Arrays) -> None:
    a["fc"][3, 2, :] = a["fc"][3, :, 2] = np.nan


def asymmetric(a: Arrays) -> None:
    a["fc"][3, 0, 1] += 0.1


def beyond_one(a: Arrays) -> None:
    both(a["fc"][3], 0, 1, 1.4)


def diagonal(a: Arrays) -> None:
    a["fc"][3, 4, 4] = 0.0


def non_square(a: Arrays) -> None:
    a["fc"] = a["fc"][:, :, :-1]


def one_class(a: Arrays) -> None:
    a["label"][a["site"] == "B"] = 1


def tiny_site(a: Arrays) -> None:
    a["site"][:3] = "C"
    a["label"][:3] = [0, 1, 1]


def duplicate_subject(a: Arrays) -> None:
    a["subject_id"][3] = a["subject_id"][4]


def duplicate_scan(a: Arrays) -> None:
    a["fc"][3] = a["fc"][4]


def unknown_label(a: Arrays) -> None:
    a["label"][3] = 7


def unknown_word(a: Arrays) -> None:
    a["label"] = np.where(a["label"] == 1, "patient", "control").astype("<U10")
    a["label"][3] = "maybe"


BAD: list[tuple[Callable[[Arrays], None], tuple[str, ...]]] = [
    (nan_roi, ("subject 's03'", "NaN or infinite", "Leave the subject out")),
    (asymmetric, ("subject 's03'", "not symmetric")),
    (beyond_one, ("subject 's03'", "values beyond 1", "fisher_z")),
    (diagonal, ("subject 's03'", "the diagonal is not 1", "ROI 5")),
    (non_square, (f"{R}, {R - 1})", "fc is (subjects, ROIs, ROIs)")),
    (one_class, ("site 'B'", "has no controls", "Merge it")),
    (tiny_site, ("site 'C'", "is too small (1 control, 2 patients", "Merge it")),
    (duplicate_subject, ("subject 's04'", "appears 2 times")),
    (duplicate_scan, ("looks like the scan of subject 's03'", "subject 's04'")),
    (unknown_label, ("subject 's03'", "unknown diagnosis '7'")),
    (unknown_word, ("subject 's03'", "maybe")),
]


@pytest.mark.parametrize(
    ("spoil", "says"), BAD, ids=lambda x: getattr(x, "__name__", "")
)
def test_bad_data_in_one_file(spoil, says, tmp_path):
    arrays = good()
    spoil(arrays)
    code = 2 if spoil is non_square else 1  # FC that is no FC stops the loading
    refused(write(tmp_path, arrays), *says, code=code)


@pytest.mark.parametrize(("spoil", "site"), [(one_class, "B"), (tiny_site, "C")])
def test_check_names_the_sites_that_a_run_refuses(spoil, site, tmp_path):
    arrays = good()
    spoil(arrays)
    path = write(tmp_path, arrays)
    answer = fcforge("check", path)
    assert answer.code == 1
    refused = f"`fcforge run` refuses these data: {site} cannot be split"
    last = answer.out.splitlines()[-1]
    assert last.startswith(f"{refused}, 1 warning, nothing would be trained.")
    assert last.endswith("base model alone: add --public.")
    assert "`fcforge run` refuses it. Merge it" in answer.out
    assert not json.loads(fcforge("check", path, "--json").out)["ok"]


@pytest.mark.parametrize(("spoil", "site"), [(one_class, "B"), (tiny_site, "C")])
def test_such_sites_may_be_for_a_base_model(spoil, site, tmp_path):
    arrays = good()
    spoil(arrays)
    path = write(tmp_path, arrays)
    answer = fcforge("check", path, "--public")
    assert answer.code == 0
    last = answer.out.splitlines()[-1]
    assert last.startswith("ok as public subjects of a base model, 1 warning.")
    assert last.endswith(f"`fcforge run` refuses these data: {site} cannot be split.")
    assert json.loads(fcforge("check", path, "--public", "--json").out)["ok"]
    nan_roi(arrays)
    assert fcforge("check", write(tmp_path, arrays), "--public").code == 1
    config = fcforge("check", config_for(path), "--public")
    assert config.code == 2
    assert "--public has no effect on a config" in config.err


def test_findings_are_machine_readable(tmp_path):
    arrays = good()
    nan_roi(arrays)
    answer = fcforge("check", write(tmp_path, arrays), "--json")
    found = json.loads(answer.out)
    assert answer.code == 1
    assert not found["ok"]
    (finding,) = found["findings"]
    assert (finding["severity"], finding["subject"], finding["site"]) == (
        "error",
        "s03",
        "A",
    )


def test_a_flat_roi_is_named_and_does_not_stop_a_run(tmp_path):
    """Real ABIDE has 54 such subjects of 871."""
    arrays = good()
    arrays["fc"][3, 2, :] = arrays["fc"][3, :, 2] = 0.0
    arrays["fc"][3, 2, 2] = 1.0
    answer = fcforge("check", write(tmp_path, arrays))
    assert answer.code == 0
    assert "warning: site 'A' subject 's03': ROI 3 without signal" in answer.out
    assert answer.out.splitlines()[-1] == "ok, 1 warning"


def test_a_run_counts_people_with_flat_rois_in_one_line():
    people = simulate("systems", n_rois=24, seed=0)
    fc = people.fc.copy()
    for person, roi in ((3, 2), (9, 5)):
        fc[person, roi, :] = fc[person, :, roi] = 0.0
        fc[person, roi, roi] = 1.0
    (line,) = data_warnings(replace(people, fc=fc))
    ids = ", ".join(people.subject_id[[3, 9]])
    assert line.startswith(f"WARNING: 2 subjects ({ids}): ROIs without signal")
    assert "fcforge check" in line
    assert "fcforge check" not in in_words_of_arrays(line, people.subject_id)


def test_a_run_warns_of_sites_whose_names_look_alike():
    people = simulate("systems", n_rois=24, seed=0)
    names = {people.site_names[0]: "Site-O", people.site_names[1]: "Site-0"}
    site = np.array([names.get(name, name) for name in people.site.tolist()])
    (line,) = data_warnings(replace(people, site=site))
    assert "look alike" in line


def test_a_misspelt_site_is_a_warning_with_the_setting_that_merges():
    people = simulate("easy", n_rois=24, seed=0)
    first = people.site_names[0]
    rows = np.flatnonzero(people.site == first)
    for n in (1, 10):
        site = people.site.astype("<U20")
        site[rows[:n]] = f"{first}{first[-1]}"
        lines = data_warnings(replace(people, site=site))
        (line,) = [line for line in lines if "one letter" in line]
        assert f"the sites '{first}' and '{first}{first[-1]}' differ" in line
        setting = line.split("--set '")[1].removesuffix("'.")
        merge = tomllib.loads(setting.removeprefix("dataset."))["merge"]
        merged = replace(people, site=site).merge_sites(merge)
        assert merged.site_names == people.site_names


def drop(name: str) -> Callable[[Arrays], None]:
    def spoil(a: Arrays) -> None:
        del a[name]

    return spoil


def wrong_edges(a: Arrays) -> None:
    a["fc_upper"] = upper_from_fc(a.pop("fc"))[:, :-1]


def short_labels(a: Arrays) -> None:
    a["label"] = a["label"][:-1]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (drop("fc"), "array 'fc_upper' is missing"),
        (drop("label"), "no column for the label"),
        (drop("site"), "no column for the site"),
        (drop("subject_id"), "no column for the id"),
        (wrong_edges, "not the triangle of a square matrix"),
        (short_labels, "'label' has shape"),
    ],
)
def test_a_file_of_another_shape(spoil, says, tmp_path):
    arrays = good()
    spoil(arrays)
    refused(write(tmp_path, arrays), says, "data.npz", code=2)


@pytest.mark.parametrize("keep", [0, 10, 700])
def test_a_truncated_file(keep, tmp_path):
    path = write(tmp_path, good())
    path.write_bytes(path.read_bytes()[:keep])
    refused(path, "data.npz: cannot be read", "damaged or cut off", code=2)


def test_a_pickled_array_is_not_opened(tmp_path):
    arrays: dict[str, Any] = good()
    arrays["site"] = np.array([{"a": 1}] * len(arrays["label"]), dtype=object)
    path = tmp_path / "data.npz"
    np.savez(path, allow_pickle=True, **arrays)
    refused(path, "data.npz", code=2)


def test_no_such_file(tmp_path):
    refused(tmp_path / "nothing.npz", "no such file or folder", code=2)


# -- a folder of files -------------------------------------------------------------------------
def folder(tmp_path: Path) -> Path:
    arrays, root = good(), tmp_path / "data"
    root.mkdir()
    lines = ["participant_id\tsite\tdiagnosis"]
    for who, where, label, fc in zip(
        arrays["subject_id"], arrays["site"], arrays["label"], arrays["fc"], strict=True
    ):
        lines.append(f"{who}\t{where}\t{label}")
        np.savetxt(root / f"{who}.csv", fc, delimiter=",")
    (root / "participants.tsv").write_text("\n".join(lines) + "\n")
    return root


def edit(root: Path, old: str, new: str) -> None:
    table = root / "participants.tsv"
    text = table.read_text()
    assert old in text
    table.write_text(text.replace(old, new, 1))


def other_rois(root: Path) -> None:
    np.savetxt(root / "s03.csv", np.eye(R + 2), delimiter=",")


def rectangle(root: Path) -> None:
    np.savetxt(root / "s03.csv", np.full((3, R), 0.5), delimiter=",")


def nan_value(root: Path) -> None:
    fc = np.loadtxt(root / "s03.csv", delimiter=",")
    both(fc, 0, 1, np.nan)
    np.savetxt(root / "s03.csv", fc, delimiter=",")


def truncated_text(root: Path) -> None:
    path = root / "s03.csv"
    path.write_text(path.read_text()[:-30])


def truncated_mat(root: Path) -> None:
    fc = np.loadtxt(root / "s03.csv", delimiter=",")
    (root / "s03.csv").unlink()
    scipy.io.savemat(root / "s03.mat", {"fc": fc})
    data = (root / "s03.mat").read_bytes()
    (root / "s03.mat").write_bytes(data[: len(data) // 2])


def missing_file(root: Path) -> None:
    (root / "s03.csv").unlink()


def twice_listed(root: Path) -> None:
    table = root / "participants.tsv"
    line = next(x for x in table.read_text().splitlines() if x.startswith("s03"))
    table.write_text(table.read_text() + line + "\n")


def odd_diagnosis(root: Path) -> None:
    line = next(
        x for x in (root / "participants.tsv").read_text().splitlines() if "s03" in x
    )
    edit(root, line, line[:-1] + "unsure")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (other_rois, f"has {R + 2} ROIs, most subjects have {R}"),
        (rectangle, "3 volumes x 6 ROIs is too short"),
        (nan_value, "2 FC values are NaN or infinite (ROI 1, 2)"),
        (truncated_text, "line 6 has 5 values, the lines before it 6"),
        (truncated_mat, "s03.mat: cannot be read"),
        (missing_file, "is listed, but has no file"),
        (twice_listed, "subject id appears 2 times"),
        (odd_diagnosis, "unknown diagnosis 'unsure'"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_bad_data_in_a_folder(spoil, says, tmp_path):
    root = folder(tmp_path)
    spoil(root)
    refused(root, says, "s03")


def test_a_good_folder_is_good(tmp_path):
    assert fcforge("check", folder(tmp_path)).code == 0


def test_a_folder_without_participants(tmp_path):
    root = folder(tmp_path)
    (root / "participants.tsv").unlink()
    refused(root, "no participants.tsv", "participant_id", code=2)
