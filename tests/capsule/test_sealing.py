"""Sealing: what is refused, what is written, what the ledger says."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
import torch
from capsule_chains import N_ROIS, QUICK, SITES, chain, cohort, settings

from fcforge.capsule import (
    learn,
    open_capsule,
    seal,
    settings_for,
    verify,
    with_audit,
)
from fcforge.capsule.ledger import GENESIS, append, canonical, read, sha256, suppressed, write
from fcforge.capsule.sealing import REAL_FLAG
from fcforge.capsule.summary import summary
from fcforge.errors import CapsuleError
from fcforge.report.inspect import inspect_words
from fcforge.types import Component, LearnerSpec, Training


def test_real_subjects_are_refused_without_the_flag_and_before_training(tmp_path) -> None:
    out = tmp_path / "a.capsule"
    ticks: list[int] = []
    with pytest.raises(CapsuleError, match="real subjects"):
        learn(
            None,
            SITES[0],
            cohort(),
            out,
            settings=settings("cumulative"),
            progress=lambda done, total, last: ticks.append(done),
        )
    assert not list(tmp_path.iterdir())
    assert not ticks
    asked = settings("cumulative")
    capsule = learn(
        None,
        SITES[0],
        cohort(),
        out,
        settings=asked,
        allow_real_subjects=True,
        progress=lambda done, total, last: ticks.append(done),
    )
    assert ticks == list(range(1, asked.training.epochs + 1))
    assert capsule.entries[-1]["flags"] == [REAL_FLAG]
    opened = open_capsule(out)
    assert bool(opened.remembered.real.all())
    assert "WARNING" in "\n".join(inspect_words(opened))
    assert "No raw scan" not in "\n".join(inspect_words(opened))
    # the next hospital needs the flag too
    with pytest.raises(CapsuleError, match="--allow-real-subjects"):
        learn(out, SITES[1], cohort(), tmp_path / "b.capsule")
    both = learn(out, SITES[1], cohort(), tmp_path / "b.capsule", allow_real_subjects=True)
    assert len(both.remembered) > len(opened.remembered)
    assert both.remembered.site.bincount().tolist()[0] == len(opened.remembered)


def test_a_generator_that_copies_subjects_counts_as_real(tmp_path) -> None:
    learner = replace(QUICK["forge"], generator=Component("bootstrap"))
    copying = settings_for(learner, N_ROIS, training=Training(epochs=1))
    with pytest.raises(CapsuleError, match="real subjects"):
        learn(None, SITES[0], cohort(), tmp_path / "a.capsule", settings=copying)


def test_real_rows_without_the_flag_do_not_open(tmp_path) -> None:
    path = chain("forge", SITES[:1], tmp_path)[0]
    capsule = open_capsule(path)
    lying = replace(capsule.remembered, real=torch.ones_like(capsule.remembered.real))
    with pytest.raises(CapsuleError, match="real subjects"):
        seal(replace(capsule, remembered=lying), tmp_path / "b.capsule")


def test_joint_cannot_be_handed_over(tmp_path) -> None:
    joint = settings_for(LearnerSpec(Component("joint"), Component("linear")), N_ROIS)
    with pytest.raises(CapsuleError, match="all sites at once"):
        learn(None, SITES[0], cohort(), tmp_path / "a.capsule", settings=joint)


def test_a_site_is_learned_once_and_on_one_atlas(tmp_path) -> None:
    path = chain("majority", SITES[:1], tmp_path)[0]
    with pytest.raises(CapsuleError, match="learned already"):
        learn(path, SITES[0], cohort(), tmp_path / "b.capsule")
    from fcforge.sites.simulated import simulate

    with pytest.raises(CapsuleError, match="12 ROIs, the capsule 10"):
        learn(path, SITES[1], simulate(n_rois=12, scale=0.3), tmp_path / "b.capsule")
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


def test_other_roi_names_are_refused(tmp_path) -> None:
    from fcforge.capsule.learning import rois_sha256

    names = tuple(f"roi{i}" for i in range(N_ROIS))
    named = replace(cohort(), roi_names=names)
    out = tmp_path / "a.capsule"
    learn(None, SITES[0], named, out, settings=settings("majority", rois=rois_sha256(named)))
    other = replace(cohort(), roi_names=names[::-1])
    with pytest.raises(CapsuleError, match="ROI names differ"):
        learn(out, SITES[1], other, tmp_path / "b.capsule")
    learn(out, SITES[1], named, tmp_path / "b.capsule")


def test_folder_and_file_are_the_same_capsule(tmp_path) -> None:
    path = chain("forge", SITES[:1], tmp_path)[0]
    capsule = open_capsule(path)
    folder = seal(capsule, tmp_path / "folder")
    assert (tmp_path / "folder").is_dir()
    assert folder.id == capsule.id == open_capsule(tmp_path / "folder").id
    learn(tmp_path / "folder", SITES[1], cohort(), tmp_path / "next.capsule")


def test_existing_files_stay_unless_asked(tmp_path) -> None:
    path = chain("majority", SITES[:1], tmp_path)[0]
    before = path.read_bytes()
    with pytest.raises(CapsuleError, match="exists"):
        learn(None, SITES[1], cohort(), path, settings=settings("majority"))
    assert path.read_bytes() == before
    learn(None, SITES[1], cohort(), path, settings=settings("majority"), overwrite=True)
    assert open_capsule(path).sites == (SITES[1],)


def test_nothing_is_left_behind_when_writing_fails(tmp_path, monkeypatch) -> None:
    capsule = open_capsule(chain("majority", SITES[:1], tmp_path)[0])
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError(28, "disk full")))
    monkeypatch.setattr("os.rename", lambda *a: (_ for _ in ()).throw(OSError(28, "disk full")))
    for out in ("b.capsule", "folder"):
        with pytest.raises(CapsuleError, match="disk full"):
            seal(capsule, tmp_path / out)
    assert len(list(tmp_path.iterdir())) == 1


def test_ledger_is_a_chain() -> None:
    entries = append(append((), {"kind": "learn", "site": "A"}), {"kind": "audit"})
    assert entries[0]["previous"] == GENESIS
    assert entries[1]["previous"] == sha256(canonical(entries[0]))
    assert read(write(entries)) == entries
    for broken in (entries[1:], entries[::-1], ({**entries[0], "site": "B"}, entries[1])):
        with pytest.raises(CapsuleError, match="chain"):
            read(write(broken))
    with pytest.raises(CapsuleError, match="empty or cut off"):
        read(b"")


def test_small_cells_are_suppressed(tmp_path) -> None:
    assert [suppressed(n) for n in (0, 1, 9, 10, 57)] == [0, None, None, 10, 57]
    capsule = open_capsule(chain("majority", SITES[:2], tmp_path)[-1])
    counts = [c for e in capsule.entries for part in e["counts"].values() for c in part.values()]
    assert None in counts  # the made-up sites are small enough to have such cells
    assert all(c is None or c == 0 or c >= 10 for c in counts)
    text = "\n".join(inspect_words(capsule))
    assert "fewer than 10" in text


def test_ledger_names_no_subject_and_no_path(tmp_path) -> None:
    path = chain("forge", SITES[:2], tmp_path)[-1]
    data = path.read_bytes()
    for subject in cohort().subject_id:
        assert str(subject).encode() not in data
    assert str(tmp_path).encode() not in data


def test_lineage_and_audit(tmp_path) -> None:
    a, b = (open_capsule(p) for p in chain("majority", SITES[:2], tmp_path))
    assert (a.parent, b.parent) == ("", a.id)
    audited = seal(with_audit(b, {"auc": 0.52, "method": "DOMIAS"}), tmp_path / "audited.capsule")
    opened = open_capsule(tmp_path / "audited.capsule")
    assert opened.id == audited.id != b.id
    assert opened.parent == b.id
    text = "\n".join(inspect_words(opened))
    assert "'auc': 0.52" in text
    assert f"Not audited as it travels now: {', '.join(SITES[:2])}." in text  # it names no site
    after = learn(tmp_path / "audited.capsule", SITES[2], cohort(), tmp_path / "c.capsule")
    assert after.sites == SITES
    assert [e["kind"] for e in after.entries] == ["learn", "learn", "audit", "learn"]


def test_an_audit_is_shown_with_its_site_and_for_the_state_it_is_about(tmp_path) -> None:
    (b,) = (open_capsule(p) for p in chain("majority", SITES[:2], tmp_path)[-1:])
    assert "Not measured: no audit" in "\n".join(inspect_words(b))
    path = tmp_path / "audited.capsule"
    seal(with_audit(b, {"site": SITES[0], "words": ["said so"]}), path)
    lines = inspect_words(open_capsule(path))
    assert lines[-3].endswith(f", site {SITES[0]}:")
    assert lines[-2].strip() == str({"site": SITES[0], "words": ["said so"]})
    assert lines[-1] == f"  Not audited as it travels now: {SITES[1]}."
    assert summary(open_capsule(path))["audited"] == [SITES[0]]
    after = learn(path, SITES[2], cohort(), tmp_path / "c.capsule")
    lines = inspect_words(after)
    assert lines[-3].endswith(f", site {SITES[0]}; {SITES[2]} came after it:")
    assert lines[-1] == f"  Not audited as it travels now: {', '.join(SITES)}."
    assert summary(after)["audited"] == []


def test_exact_statistics_are_called_patient_data(tmp_path) -> None:
    said = [
        "\n".join(inspect_words(open_capsule(chain(m, SITES[:1], tmp_path / m)[0])))
        for m in ("analytic", "majority")
    ]
    assert ["treat as patient data" in text for text in said] == [True, False]


def test_signature(tmp_path) -> None:
    from fcforge.capsule.signing import read_private, read_public, write_keys

    ours, theirs = tmp_path / "ours.pem", tmp_path / "theirs.pem"
    write_keys(ours)
    write_keys(theirs)
    assert ours.stat().st_mode & 0o077 == 0
    key, public, other = (
        read_private(ours),
        read_public(f"{ours}.pub"),
        read_public(f"{theirs}.pub"),
    )
    out = tmp_path / "a.capsule"
    signed = learn(None, SITES[0], cohort(), out, settings=settings("majority"), key=key)
    assert signed.signed_by == public
    assert open_capsule(out, trusted=[public]).signed_by == public
    assert open_capsule(out).signed_by == public
    with pytest.raises(CapsuleError, match="trusted key"):
        open_capsule(out, trusted=[other])
    unsigned = seal(signed, tmp_path / "b.capsule")
    assert unsigned.signed_by == ""
    with pytest.raises(CapsuleError, match="not signed"):
        open_capsule(tmp_path / "b.capsule", trusted=[public])
    after = learn(out, SITES[1], cohort(), tmp_path / "c.capsule", trusted=[public])
    assert after.entries[-1]["parent_signed_by"] == public


def test_a_complete_forgery_is_caught_by_the_signature_alone(tmp_path) -> None:
    """All checksums can be made to fit; only a signature cannot. This is what it is for."""
    from fcforge.capsule import container as box
    from fcforge.capsule.signing import read_private, read_public, write_keys

    write_keys(tmp_path / "k")
    out, key = tmp_path / "a.capsule", read_private(tmp_path / "k")
    learn(None, SITES[0], cohort(), out, settings=settings("majority"), key=key)
    capsule = open_capsule(out)
    entry = {**capsule.entries[0], "site": "Elsewhere"}
    forged = replace(capsule, entries=(entry,), sites=("Elsewhere",))
    seal(forged, tmp_path / "forged.capsule")
    assert all(c.ok for c in verify(tmp_path / "forged.capsule"))
    # with the old signature put back it is caught without any trusted key
    parts = box.read_parts(tmp_path / "forged.capsule")
    old = json.loads(box.read_parts(out)[box.SEAL])
    old["manifest_sha256"] = sha256(parts[box.MANIFEST])
    parts[box.SEAL] = canonical(old)
    (tmp_path / "stolen.capsule").write_bytes(box.pack(parts))
    with pytest.raises(CapsuleError, match="signature"):
        open_capsule(tmp_path / "stolen.capsule")
    with pytest.raises(CapsuleError, match="not signed"):
        open_capsule(tmp_path / "forged.capsule", trusted=[read_public(tmp_path / "k.pub")])


def test_a_described_network_cannot_eat_memory(tmp_path) -> None:
    """A manifest that describes a network of 10^10 numbers costs nothing to refuse."""
    capsule = open_capsule(chain("independent", SITES[:1], tmp_path)[0])
    big = replace(
        capsule.settings,
        learner=replace(capsule.settings.learner, model=Component("mlp", {"hidden": 90_000})),
        n_rois=1000,
    )
    entry = {**capsule.entries[0], "settings": big.to_json()}
    seal(replace(capsule, settings=big, entries=(entry,)), tmp_path / "big.capsule")
    with pytest.raises(CapsuleError, match="larger than the stored one"):
        open_capsule(tmp_path / "big.capsule")


BIG = Component("forge", {"memory": 10**12})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": (False, 1)}, "settings of the manifest"),  # False == 0, but is not 0
        ({"n_rois": 12}, "settings of the manifest"),
        ({"training": asdict(Training()) | {"epochs": 0}}, "epochs = 0 is too small"),
        ({"training": asdict(Training()) | {"selection": "t"}}, "selection = 't' is unknown"),
        ({"n_rois": 10**6}, "cannot be used"),
        ({"judge": asdict(Component("none"))}, "does not know 'none'"),
        ({"learner": asdict(LearnerSpec(BIG, Component("gcn")))}, "larger"),
    ],
)
def test_settings_that_disagree_or_cannot_be(tmp_path, change, message) -> None:
    from fcforge.capsule import container as box

    path = chain("majority", SITES[:1], tmp_path)[0]
    parts = box.read_parts(path)
    manifest = json.loads(parts[box.MANIFEST])
    manifest["settings"] = open_capsule(path).settings.to_json() | change
    parts[box.MANIFEST] = canonical(manifest)
    seal_part = json.loads(parts[box.SEAL])
    parts[box.SEAL] = canonical(seal_part | {"manifest_sha256": sha256(parts[box.MANIFEST])})
    (tmp_path / "forged").write_bytes(box.pack(parts))
    with pytest.raises(CapsuleError, match=message):
        open_capsule(tmp_path / "forged")


def test_a_privacy_budget_is_said_and_so_is_a_void_one(tmp_path) -> None:
    private = LearnerSpec(Component("dp_analytic", {"epsilon": 2.5}), Component("linear"))
    out = tmp_path / "dp.capsule"
    made = learn(None, SITES[0], cohort(), out, settings=settings_for(private, N_ROIS, held_out=0))
    said = inspect_words(made)
    assert summary(made)["privacy_budget"] == {
        "epsilon": 2.5, "delta": 1e-3, "noise_is_secret": True,
    }  # fmt: skip
    assert any("carry epsilon 2.5 (delta 0.001) per person" in line for line in said)
    known = inspect_words(open_capsule(chain("dp_analytic", SITES[:1], tmp_path)[0]))
    assert any("there is no guarantee" in line for line in known)


def test_a_place_that_cannot_be_written_is_refused_before_training(tmp_path, monkeypatch) -> None:
    from fcforge.capsule import learning

    trained = []
    monkeypatch.setattr(learning, "learn_next", lambda *a, **k: trained.append(a))
    taken = tmp_path / "file"
    taken.write_text("")
    for out, said in ((taken / "x.capsule", "cannot be written"), (taken, "exists already")):
        with pytest.raises(CapsuleError, match=said):
            learn(None, SITES[0], cohort(), out, settings=settings("majority"))
    assert not trained
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_shuffled_rois_are_noticed_without_their_names(tmp_path) -> None:
    path = tmp_path / "a.capsule"
    learn(None, SITES[0], cohort(), path, settings=settings("majority", held_out=48))
    order = [3, 8, 0, 5, 9, 2, 7, 1, 6, 4]
    shuffled = replace(cohort(), fc=cohort().fc[:, order][:, :, order])
    for name, data, warned in (("ours", cohort(), False), ("theirs", shuffled, True)):
        said: list[str] = []
        learn(path, SITES[1], data, tmp_path / f"{name}.capsule", say=said.append)
        assert ["same order of ROIs" in text for text in said] == [True] * warned
