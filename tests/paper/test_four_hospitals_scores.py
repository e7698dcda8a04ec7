"""Scores of four hospitals: what is packed comes back, and gives the spreadsheet without the data."""

import itertools
import json

import numpy as np
import pytest
from four_hospitals_scores import (
    NAMES,
    PUBLIC,
    FileScores,
    Stored,
    pack,
    read_scores,
    sets_of,
    signed_ranks,
    summary,
    values_of,
)
from make_tables import RESULTS
from scores import write_table
from sums_scores import PUBLIC as PUBLIC_OF_SUMS
from sums_scores import sheet
from sums_tables import in_orders, rows_of, use

from fcforge.core.errors import DataError
from fcforge.core.randomness import numpy_rng
from fcforge.evaluation.privacy.measures import auc

SITES = ("A", "B", "C")
SETS = sets_of(SITES)
PEOPLE = 12  # of a hospital; half of them are tested
SEEDS = 3


def made() -> tuple[Stored, dict[str, list[np.ndarray]]]:
    """Three hospitals and two rows, the second with two draws, and the scores behind the ranks."""
    rng = numpy_rng(0, "four hospitals scores")
    n = len(SITES) * PEOPLE
    site, y = np.repeat(np.arange(len(SITES)), PEOPLE), np.arange(n) // 2 % 2
    tested = (np.arange(n) + np.arange(SEEDS)[:, None]) % 2 == 0
    scores = {
        row: [rng.normal(size=(n // 2, len(SETS), draws)).round(1) for _ in tested]
        for row, draws in ((PUBLIC, 1), ("local, epsilon 1", 2))
    }
    ranks = {
        row: np.concatenate(
            [signed_ranks(s, site[t]) for s, t in zip(each, tested, strict=True)]
        )
        for row, each in scores.items()
    }
    people = FileScores(rng.permutation(n), site, y, tested, ranks)
    return Stored(SITES, {"made.npz": people}, {"commit": "c"}), scores


# -- packing ---------------------------------------------------------------------------------------
def test_signed_ranks_keep_order_ties_and_the_side_of_the_threshold():
    scores = np.array([[0.3], [-0.1], [0.3], [0.0], [9.0], [-5.0], [7.0]])
    site = np.array([0, 0, 0, 0, 0, 1, 1])
    assert signed_ranks(scores, site)[:, 0].tolist() == [1, -1, 1, 0, 2, 0, 1]


def test_ranks_that_need_more_than_a_byte_are_refused():
    with pytest.raises(ValueError, match="too large"):
        signed_ranks(np.arange(1.0, 130.0)[:, None], np.zeros(129))


def test_what_is_written_comes_back(tmp_path):
    stored, _ = made()
    write_table(tmp_path / "four.npz", pack(stored))
    found = read_scores(tmp_path / "four.npz")
    assert found.sites == SITES
    assert found.about["commit"] == "c"
    mine, theirs = found.files["made.npz"], stored.files["made.npz"]
    for name in ("place", "site", "y", "tested"):
        assert (getattr(mine, name) == getattr(theirs, name)).all()
    assert list(mine.ranks) == list(theirs.ranks)
    for title, ranks in mine.ranks.items():
        assert (ranks == theirs.ranks[title]).all()
    assert sheet(summary(found)) == sheet(summary(stored))


# -- damage ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["about", "place_0", "tested_0", "ranks_0_1"])
def test_arrays_that_do_not_fit_are_refused(name, tmp_path):
    arrays = pack(made()[0])
    path = tmp_path / "four.npz"
    write_table(path, arrays | {name: arrays[name][:-1]})
    with pytest.raises(DataError, match="Take it from the repository again"):
        read_scores(path)


def test_another_format_is_refused(tmp_path):
    arrays = pack(made()[0])
    about = json.loads(arrays["about"].tobytes()) | {"format": 99}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    write_table(tmp_path / "four.npz", arrays)
    with pytest.raises(DataError, match="format 99"):
        read_scores(tmp_path / "four.npz")


# -- numbers ---------------------------------------------------------------------------------------
def in_turn(scores: np.ndarray, y: np.ndarray, site: np.ndarray) -> tuple[float, float]:
    """AAA over all orders, one after another, and AUROC after all hospitals."""
    stages = []
    for order in itertools.permutations(range(len(SITES))):
        for stage in range(1, len(SITES) + 1):
            chosen = tuple(SITES[s] for s in sorted(order[:stage]))
            called = scores[:, SETS.index(chosen)] > 0
            seen = [(called == y)[site == s].mean() for s in order[:stage]]
            stages.append(np.mean(seen))
    areas = []
    for s in range(len(SITES)):
        last, ill = scores[site == s, -1], y[site == s] == 1
        one = np.ones(ill.sum()), np.ones((~ill).sum())
        areas.append(float(auc(last[ill], last[~ill], *one)))
    return float(np.mean(stages)), float(np.mean(areas))


def test_numbers_are_those_of_the_scores_in_every_order():
    stored, scores = made()
    people = stored.files["made.npz"]
    for row, seeds in scores.items():
        wanted = [
            np.mean(
                [
                    in_turn(draw, people.y[t], people.site[t])
                    for draw in s.transpose(2, 0, 1)
                ],
                axis=0,
            )
            for s, t in zip(seeds, people.tested, strict=True)
        ]
        assert values_of(people, row, SITES) == pytest.approx(np.array(wanted))


def test_intervals_are_over_seeds_and_differences_are_paired():
    stored, _ = made()
    people = stored.files["made.npz"]
    first, second = summary(stored)
    assert [first["row"], second["row"]] == [PUBLIC, "local, epsilon 1"]
    assert first["auroc_gain"] == first["auroc_gain_high"] == 0
    values = [values_of(people, row, SITES) for row in people.ranks]
    gain = (values[1] - values[0])[:, 1]
    reach = 1.96 * gain.std(ddof=1) / SEEDS**0.5
    assert second["auroc_gain"] == pytest.approx(gain.mean())
    assert second["auroc_gain_low"] == pytest.approx(gain.mean() - reach)
    assert second["auroc_gain_high"] == pytest.approx(gain.mean() + reach)


# -- the stored file -------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def stored() -> Stored:
    return read_scores(RESULTS / "four_hospitals.npz")


def test_the_spreadsheet_follows_from_the_stored_scores(stored):
    made = sheet(summary(stored))
    assert made == (RESULTS / "four_hospitals.csv").read_text()
    assert {key for key in made.splitlines()[0].split(",") if key in NAMES} == set(
        NAMES
    )


def test_the_stored_file_is_small_and_of_the_commit_beside_it(stored):
    about = json.loads((RESULTS / "four_hospitals.json").read_text())
    assert {key: stored.about[key] for key in about} == about
    assert (RESULTS / "four_hospitals.npz").stat().st_size < 2e6


def test_every_seed_tests_people_of_every_hospital(stored):
    assert stored.sites == ("NYU", "UM", "USM", "UCLA")
    for people in stored.files.values():
        assert len(set(people.place.tolist())) == len(people.place)
        assert len(people.tested) == 20
        for tested in people.tested:
            for site in range(4):
                assert set(people.y[tested & (people.site == site)]) == {0, 1}


def test_the_base_model_alone_does_not_change_when_hospitals_contribute(stored):
    for people in stored.files.values():
        ranks = people.ranks[PUBLIC]
        assert (ranks == ranks[:, :1]).all()


def test_both_tables_call_the_base_model_alike():
    assert PUBLIC == PUBLIC_OF_SUMS


def test_sheets_in_use_are_shown_instead_of_the_stored_ones(monkeypatch):
    monkeypatch.setattr("sums_tables._SHEETS", {})
    row = dict.fromkeys(
        [f"{n}{e}" for n in NAMES for e in ("", "_low", "_high")], "0.5"
    )
    heads = ["file", "row", *row]
    use(
        {"four_hospitals": ",".join(heads) + "\nmade.npz,two," + ",".join(row.values())}
    )
    assert (
        in_orders("four_hospitals", "made.npz")
        .splitlines()[-1]
        .startswith("| two | 0.500")
    )
    monkeypatch.undo()
    rows_of.cache_clear()
