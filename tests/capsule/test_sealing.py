"""Sealing: what is refused, what is written, what the ledger says."""

from dataclasses import replace

import pytest
import torch
from capsule_chains import N_ROIS, QUICK, SITES, an_audit, chain, cohort, settings

from fcforge.capsule import (
    LearnOptions,
    learn,
    open_capsule,
    seal,
    settings_for,
    with_audit,
)
from fcforge.capsule.ledger import (
    GENESIS,
    append,
    canonical,
    read,
    sha256,
    suppressed,
    write,
)
from fcforge.capsule.sealing import REAL_FLAG
from fcforge.errors import CapsuleError
from fcforge.types import Component, LearnerSpec, Training


def test_real_subjects_are_refused_without_the_flag_and_before_training(
    tmp_path,
) -> None:
    out = tmp_path / "a.capsule"
    ticks: list[int] = []
    with pytest.raises(CapsuleError, match="real subjects"):
        learn(
            None,
            SITES[0],
            cohort(),
            out,
            settings=settings("cumulative"),
            options=LearnOptions(progress=lambda done, total, last: ticks.append(done)),
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
        options=LearnOptions(
            allow_real_subjects=True,
            progress=lambda done, total, last: ticks.append(done),
        ),
    )
    assert ticks == list(range(1, asked.training.epochs + 1))
    assert capsule.entries[-1]["flags"] == [REAL_FLAG]
    opened = open_capsule(out)
    assert bool(opened.remembered.real.all())
    # the next hospital needs the flag too
    with pytest.raises(CapsuleError, match="--allow-real-subjects"):
        learn(out, SITES[1], cohort(), tmp_path / "b.capsule")
    allowed = LearnOptions(allow_real_subjects=True)
    both = learn(out, SITES[1], cohort(), tmp_path / "b.capsule", options=allowed)
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
    again = LearnOptions(overwrite=True)
    learn(None, SITES[1], cohort(), path, settings=settings("majority"), options=again)
    assert open_capsule(path).sites == (SITES[1],)


def test_nothing_is_left_behind_when_writing_fails(tmp_path, monkeypatch) -> None:
    capsule = open_capsule(chain("majority", SITES[:1], tmp_path)[0])
    monkeypatch.setattr(
        "os.replace", lambda *a: (_ for _ in ()).throw(OSError(28, "disk full"))
    )
    monkeypatch.setattr(
        "os.rename", lambda *a: (_ for _ in ()).throw(OSError(28, "disk full"))
    )
    for out in ("b.capsule", "folder"):
        with pytest.raises(CapsuleError, match="disk full"):
            seal(capsule, tmp_path / out)
    assert len(list(tmp_path.iterdir())) == 2  # the capsule and its receipt


def test_ledger_is_a_chain() -> None:
    entries = append(append((), {"kind": "learn", "site": "A"}), {"kind": "audit"})
    assert entries[0]["previous"] == GENESIS
    assert entries[1]["previous"] == sha256(canonical(entries[0]))
    assert read(write(entries)) == entries
    for broken in (
        entries[1:],
        entries[::-1],
        ({**entries[0], "site": "B"}, entries[1]),
    ):
        with pytest.raises(CapsuleError, match="chain"):
            read(write(broken))
    with pytest.raises(CapsuleError, match="empty or cut off"):
        read(b"")


def test_small_cells_are_suppressed(tmp_path) -> None:
    assert [suppressed(n) for n in (0, 1, 9, 10, 57)] == [0, None, None, 10, 57]
    capsule = open_capsule(chain("majority", SITES[:2], tmp_path)[-1])
    counts = [
        c
        for e in capsule.entries
        for part in e["counts"].values()
        for c in part.values()
    ]
    assert None in counts  # the made-up sites are small enough to have such cells
    assert all(c is None or c == 0 or c >= 10 for c in counts)


def test_ledger_names_no_subject_and_no_path(tmp_path) -> None:
    path = chain("forge", SITES[:2], tmp_path)[-1]
    data = path.read_bytes()
    for subject in cohort().subject_id:
        assert str(subject).encode() not in data
    assert str(tmp_path).encode() not in data


def test_lineage_and_audit(tmp_path) -> None:
    a, b = (open_capsule(p) for p in chain("majority", SITES[:2], tmp_path))
    assert (a.parent, b.parent) == ("", a.id)
    path = tmp_path / "audited.capsule"
    audited = seal(with_audit(b, an_audit(SITES[0])), path)
    opened = open_capsule(path)
    assert opened.id == audited.id != b.id
    assert opened.parent == b.id
    after = learn(path, SITES[2], cohort(), tmp_path / "c.capsule")
    assert after.sites == SITES
    assert [e["kind"] for e in after.entries] == ["learn", "learn", "audit", "learn"]


def test_a_described_network_cannot_eat_memory(tmp_path) -> None:
    """A manifest that describes a network of 10^10 numbers costs nothing to refuse."""
    capsule = open_capsule(chain("independent", SITES[:1], tmp_path)[0])
    big = replace(
        capsule.settings,
        learner=replace(
            capsule.settings.learner, model=Component("mlp", {"hidden": 90_000})
        ),
        n_rois=1000,
    )
    entry = {**capsule.entries[0], "settings": big.digest}
    seal(replace(capsule, settings=big, entries=(entry,)), tmp_path / "big.capsule")
    with pytest.raises(CapsuleError, match="larger than the stored one"):
        open_capsule(tmp_path / "big.capsule")
