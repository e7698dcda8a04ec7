"""A harmonised chain: the run's numbers, a reference that cannot be forged, scans that say where
they are from."""

from dataclasses import replace

import numpy as np
import pytest
from capsule_chains import N_ROIS, SITES, cohort, settings

from fcforge.capsule import LearnOptions, learn, open_capsule, seal
from fcforge.capsule.contents import summary
from fcforge.capsule.keys import read_private, write_keys
from fcforge.capsule.ledger import append
from fcforge.capsule.prediction import predict_scans, predictor
from fcforge.errors import CapsuleError, DataError
from fcforge.sites import split_site
from fcforge.sites.harmonise import Harmony, Level, harmonise_sites, to_z
from fcforge.types import FCBatch

HOW = ("site_demean", "combat")
N_EDGES = N_ROIS * (N_ROIS - 1) // 2


def chain(folder, how, name="analytic", sites=SITES[:2], **options):
    """Capsule of some sites, each learned at its own hospital."""
    path = None
    for k, site in enumerate(sites):
        out = folder / f"{how}-{name}-{k}.capsule"
        made = settings(name, harmonise=how) if path is None else None
        given = (
            LearnOptions(**options)
            if path is None
            else LearnOptions(key=options.get("key"))
        )
        learn(path, site, cohort(), out, settings=made, options=given)
        path = out
    return open_capsule(path)


@pytest.fixture(scope="module")
def combat(tmp_path_factory):
    return chain(tmp_path_factory.mktemp("combat"), "combat")


def test_new_people_are_moved_as_those_of_their_site_were(combat) -> None:
    fc, site = cohort().fc, cohort().site
    first, second = (fc[site == name] for name in SITES[:2])
    np.testing.assert_array_equal(combat.moved(first, SITES[0]), first)
    moved = combat.moved(second, SITES[1])
    sites = {name: split_site(cohort(), name, 0) for name in SITES[:2]}
    run = harmonise_sites(sites, "combat", SITES[0])[SITES[1]].test.fc.numpy()
    np.testing.assert_array_equal(
        combat.moved(sites[SITES[1]].test.fc.numpy(), SITES[1]), run
    )
    both = combat.moved(
        np.concatenate([first, second]), site[np.isin(site, SITES[:2])].tolist()
    )
    np.testing.assert_array_equal(both, np.concatenate([first, moved]))


def test_predicting_asks_for_the_site(combat) -> None:
    fc = cohort().fc[:4]
    with pytest.raises(CapsuleError, match="a scan's site matters"):
        predictor(combat).judge(fc, {})
    with pytest.raises(DataError, match=f"'{SITES[2]}' was not among those learned"):
        predictor(combat, SITES[2]).judge(fc, {})
    with pytest.raises(DataError, match="has one subject"):
        predictor(combat, SITES[2], "estimate").judge(fc[:1], {})
    told = [
        predictor(combat, *how).judge(fc, {}).odds
        for how in ((SITES[0],), (SITES[2], "leave"), (SITES[2], {SITES[2]: SITES[0]}))
    ]
    np.testing.assert_array_equal(told[0], told[1])
    np.testing.assert_array_equal(told[0], told[2])
    estimated = predictor(combat, SITES[2], "estimate").judge(fc, {}).odds
    assert not np.array_equal(told[0], estimated, equal_nan=True)


def test_an_estimated_effect_does_not_make_strange_scans_ordinary(combat) -> None:
    """ROIs in another order: demeaned, their mean is the reference's."""
    mixed = np.random.default_rng(0).permutation(N_ROIS)
    fc = cohort().fc[cohort().site == SITES[2]][:, mixed][:, :, mixed]
    told = predictor(combat, SITES[2], "estimate").judge(fc, {})
    left = predictor(combat, SITES[2], "leave").judge(fc, {})
    np.testing.assert_array_equal(told.strangeness, left.strangeness)
    assert np.isnan(told.odds).mean() > 0.5


def test_a_file_that_says_another_learned_site_is_not_moved_as_this_one(
    combat, tmp_path
) -> None:
    """One step away from a plausible wrong answer: --site of the wrong hospital."""
    mine = cohort().select_sites(SITES[1:3])
    np.savez(tmp_path / "d.npz", fc=mine.fc, site=mine.site, subject_id=mine.subject_id)
    for site, wrong in ((SITES[1], False), (SITES[0], True)):
        rows = predict_scans(predictor(combat, site), tmp_path / "d.npz")
        for row, own in zip(
            rows, mine.site, strict=True
        ):  # a new site may resemble a learned one
            assert (row.status == "cannot be used") == (wrong and own == SITES[1])
    assert rows[0].note == f"is of site '{SITES[1]}' by its file, not of '{SITES[0]}'"


def test_the_summary_tells_what_travels(combat) -> None:
    said = summary(combat)
    shapes = {a["name"]: a["shape"] for a in said["arrays"]}
    assert shapes["harmony/level"] == shapes["harmony/spread"] == [N_EDGES]
    assert shapes["harmony/scale"] == shapes["harmony/shift"] == [2, N_EDGES]
    assert said["settings"]["harmonise"] == "combat"


def test_a_network_alone_does_not_travel_alone_when_harmonised(tmp_path) -> None:
    assert (
        chain(tmp_path, "site_demean", "finetune", SITES[:1]).settings.keeps
        == "statistics"
    )


def test_public_people_may_be_the_reference(tmp_path) -> None:
    public = cohort().select_sites([SITES[2]])
    people = FCBatch.from_numpy(public.fc, public.y)
    made = chain(tmp_path, "site_demean", sites=SITES[:1], public=people)
    np.testing.assert_array_equal(made.harmony.level, Level.of(to_z(public.fc)).mean)
    assert made.harmony.shift.any()  # the first site moves, too
    with pytest.raises(CapsuleError, match="public people"):
        chain(tmp_path, "none", sites=SITES[:1], public=people)
    few = FCBatch(people.fc[:, :5, :5], people.y)
    with pytest.raises(CapsuleError, match="5 ROIs, the site 10"):
        chain(tmp_path, "combat", "finetune", sites=SITES[:1], public=few)


def test_few_people_are_not_handed_on_as_a_mean() -> None:
    with pytest.raises(DataError, match="9 people to harmonise with"):
        Harmony.to_public("combat", np.stack([np.eye(4)] * 9))


def _changed(harmony, name, place=...):
    array = getattr(harmony, name).copy()
    array[place] *= 1.5
    return replace(harmony, **{name: array})


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (
            lambda h: _changed(h, "level"),
            f"how site '{SITES[0]}' is harmonised is not what it",
        ),
        (
            lambda h: _changed(h, "spread"),
            f"how site '{SITES[0]}' is harmonised is not what it",
        ),
        (
            lambda h: _changed(h, "scale", 0),
            f"how site '{SITES[0]}' is harmonised is not what",
        ),
        (
            lambda h: _changed(h, "shift", 1),
            f"how site '{SITES[1]}' is harmonised is not what",
        ),
        (lambda h: replace(h, scale=-h.scale), "a scale is not above zero"),
        (lambda h: replace(h, shift=h.shift[:1]), "'shift' has another shape or type"),
        (
            lambda h: replace(h, level=h.level.astype(np.float32)),
            "'level' has another shape",
        ),
        (lambda h: replace(h, level=h.level[:-1]), "'level' has another shape"),
        (lambda h: None, "not what harmonise = 'combat' declares"),
    ],
)
def test_a_forged_harmonisation_is_refused(combat, forge, message, tmp_path) -> None:
    """The last hospital seals what it likes; the lines of the others say what they handed over."""
    forged = replace(combat, harmony=forge(combat.harmony), id="")
    seal(forged, tmp_path / "forged.capsule")
    with pytest.raises(CapsuleError, match=message):
        open_capsule(tmp_path / "forged.capsule")


def test_a_harmonisation_nobody_declared_is_refused(combat, tmp_path) -> None:
    plain = chain(tmp_path, "none", sites=SITES[:1])
    seal(replace(plain, harmony=combat.harmony, id=""), tmp_path / "a.capsule")
    with pytest.raises(CapsuleError, match="not what harmonise = 'none' declares"):
        open_capsule(tmp_path / "a.capsule")
    line = {
        k: v for k, v in plain.entries[0].items() if k not in ("number", "previous")
    }
    entries = append((), {**line, "harmonised": "0" * 64})
    seal(replace(plain, entries=entries, id=""), tmp_path / "b.capsule")
    with pytest.raises(CapsuleError, match="a harmonisation that is not there"):
        open_capsule(tmp_path / "b.capsule")


def test_a_later_hospital_cannot_move_an_earlier_one_s_people(tmp_path) -> None:
    write_keys(tmp_path / "k")
    made = chain(tmp_path, "site_demean", key=read_private(tmp_path / "k"))
    forged = replace(made, harmony=_changed(made.harmony, "level"), id="")
    seal(forged, tmp_path / "x.capsule", key=read_private(tmp_path / "k"))
    with pytest.raises(CapsuleError, match="is not what it signed"):
        open_capsule(tmp_path / "x.capsule")


def test_a_demeaned_chain_scales_nobody(tmp_path) -> None:
    harmony = chain(tmp_path, "site_demean").harmony
    assert (harmony.scale == 1).all()
    assert (
        _changed(harmony, "scale").complaint(2, N_EDGES) == "demeaning scales nothing"
    )
