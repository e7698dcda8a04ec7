"""Scores of sums: what is packed comes back, and gives the spreadsheets without the data."""

import csv
import json

import numpy as np
import pytest
from make_tables import RESULTS, sums
from scores import write_table
from sums_scores import (
    ATTACKS,
    GROUPS,
    PLANS,
    POOLED,
    PUBLIC,
    WHOLE,
    Cell,
    People,
    Stored,
    area_of_order,
    area_of_ranks,
    attack_rows,
    calibration,
    in_groups,
    order_bits,
    pack,
    pairs_of,
    ranks_within,
    read_scores,
    resampled,
    right_order,
    roles_of,
    rows_of_cell,
    sheet,
    smallest,
    summary,
    worth_rows,
)
from sums_tables import rows_of, use

from fcforge.core.errors import DataError
from fcforge.core.randomness import numpy_rng
from fcforge.evaluation.privacy.measures import auc
from fcforge_consortium.privacy.noise import ceiling_of

NAMES = (PUBLIC, *PLANS)
SITE = 40  # people of a site; with one of three public as many learn and are tested


def small_people() -> People:
    """Three sites, patients and controls in turn."""
    n = 3 * SITE
    young = np.arange(n) < n // 2
    groups = np.stack([young, ~young, np.full(n, False), np.full(n, True)])
    return People(
        numpy_rng(0, "places").permutation(n),
        np.repeat(np.arange(3), SITE),
        np.arange(n) % 2,
        groups,
        ("A", "B", "C"),
    )


def small_roles(people: People) -> np.ndarray:
    """Two partitions: A is public and B and C are hospitals, then B is public."""
    roles = []
    for public in (0, 1):
        rest = np.flatnonzero(people.site != public)
        test = rest[np.isin(rest % 8, (0, 1, 2, 3))]
        learn = np.setdiff1d(rest, test)
        roles.append(
            roles_of(3 * SITE, (np.flatnonzero(people.site == public), learn, test))
        )
    return np.stack(roles)


def small_worth(seed: int = 0) -> tuple[Stored, list[np.ndarray]]:
    """Two rows, the second with three draws, and the scores behind the ranks."""
    people = small_people()
    roles = small_roles(people)
    rng = numpy_rng(seed, "scores")
    scores = [rng.normal(size=(SITE, 4)).round(1) for _ in roles]
    ranks = [
        ranks_within(each, people.site[r == 3])
        for each, r in zip(scores, roles, strict=True)
    ]
    columns = ((PUBLIC, 1), (POOLED, 3))
    arrays = {"ranks": smallest(np.concatenate(ranks))}
    cell = Cell("made.npz", SITE, None, columns, roles, arrays)
    return Stored("worth", {"made.npz": people}, (cell,), {"commit": "c"}), scores


def small_attacks() -> tuple[Stored, dict[tuple[str, str], list[np.ndarray]]]:
    """One attack of one draw and one of five on every plan, and their scores by partition."""
    people = small_people()
    roles = small_roles(people)
    rng = numpy_rng(0, "attacks")
    columns = []
    scores: dict[tuple[str, str], list[np.ndarray]] = {}
    ranks, orders = [], []
    for partition in roles:
        inside = partition[partition >= 2] == 2
        columns, once = [], []
        for name in PLANS:
            for attack, draws in ((ATTACKS[0], 1), (ATTACKS[2], 5)):
                each = rng.normal(size=(2 * SITE, draws)) + inside[:, None]
                scores.setdefault((name, attack), []).append(each)
                columns.append((name, attack, draws))
                if draws == 1:
                    once.append(each)
                else:
                    orders.append(order_bits(each, inside).ravel())
        ranks.append(ranks_within(np.concatenate(once, 1), np.zeros(2 * SITE)))
    chance = rng.integers(0, WHOLE + 1, (2 * SITE, len(NAMES))).astype(np.uint32)
    arrays = {
        "ranks": smallest(np.concatenate(ranks)),
        "order": np.concatenate(orders),
        "chance": chance,
    }
    cell = Cell("made.npz", SITE, None, tuple(columns), roles, arrays)
    return Stored("attacks", {"made.npz": people}, (cell,), {}), scores


# -- packing ---------------------------------------------------------------------------------------
def test_ranks_keep_order_and_ties_within_a_site():
    scores = np.array([[0.3], [0.1], [0.3], [-5.0], [9.0]])
    site = np.array([0, 0, 0, 1, 1])
    assert ranks_within(scores, site)[:, 0].tolist() == [1, 0, 1, 0, 1]


@pytest.mark.parametrize("make", [small_worth, small_attacks])
def test_what_is_written_comes_back(make, tmp_path):
    stored = make()[0]
    write_table(tmp_path / "sums.npz", pack(stored))
    found = read_scores(tmp_path / "sums.npz")
    assert found.kind == stored.kind
    (cell,), (wanted,) = found.cells, stored.cells
    assert cell.place() == wanted.place()
    assert cell.columns == wanted.columns
    assert (cell.roles == wanted.roles).all()
    assert cell.arrays.keys() == wanted.arrays.keys()
    for name, array in cell.arrays.items():
        assert array.dtype == wanted.arrays[name].dtype
        assert (array == wanted.arrays[name]).all()
    mine, theirs = found.people["made.npz"], stored.people["made.npz"]
    for name in ("place", "site", "y", "groups"):
        assert (getattr(mine, name) == getattr(theirs, name)).all()
    assert sheet(summary(found)) == sheet(summary(stored))


def test_roles_of_fewer_hospitals_leave_learning_people_unused():
    roles = roles_of(5, (np.array([0]), np.array([2]), np.array([4])))
    assert roles.tolist() == [1, 0, 2, 0, 3]


def test_large_ranks_take_two_bytes_or_are_refused():
    assert smallest(np.array([255])).dtype == np.uint8
    assert smallest(np.array([256])).dtype == np.uint16
    with pytest.raises(ValueError, match="too large"):
        smallest(np.array([65536]))


def test_bits_refuse_ties():
    with pytest.raises(ValueError, match="equal scores"):
        order_bits(np.zeros((3, 1)), np.array([True, False, True]))


# -- damage ----------------------------------------------------------------------------------------
def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "sums.npz"
    write_table(path, pack(small_worth()[0]))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"sums\.npz: not a file of scores of sums"):
        read_scores(path)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((small_worth, name) for name in ("ranks_0", "y_0", "about")),
        *((small_attacks, f"{name}_0") for name in ("ranks", "order", "chance")),
    ],
)
def test_arrays_that_do_not_fit_are_refused(make, name, tmp_path):
    arrays = pack(make()[0])
    path = tmp_path / "sums.npz"
    write_table(path, arrays | {name: arrays[name][:-1]})
    with pytest.raises(DataError, match="Take it from the repository again"):
        read_scores(path)


def test_another_format_is_refused(tmp_path):
    arrays = pack(small_worth()[0])
    about = json.loads(arrays["about"].tobytes()) | {"format": 99}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    write_table(tmp_path / "sums.npz", arrays)
    with pytest.raises(DataError, match="format 99"):
        read_scores(tmp_path / "sums.npz")


# -- numbers ---------------------------------------------------------------------------------------
def test_auroc_within_hospitals_is_that_of_the_scores():
    stored, scores = small_worth()
    people, (cell,) = stored.people["made.npz"], stored.cells
    wanted = []
    for roles, each in zip(cell.roles, scores, strict=True):
        y, site = people.y[roles == 3], people.site[roles == 3]
        right, n = np.zeros(4), 0
        for i in range(SITE):
            for j in range(SITE):
                if y[i] == 1 and y[j] == 0 and site[i] == site[j]:
                    right += (each[i] > each[j]) + 0.5 * (each[i] == each[j])
                    n += 1
        wanted.append([right[0] / n, right[1:].mean() / n])
    rows = worth_rows(people, cell)
    assert [row["row"] for row in rows] == [PUBLIC, POOLED]
    assert [row["auroc"] for row in rows] == pytest.approx(np.mean(wanted, 0))
    assert rows[1]["gain"] == pytest.approx(np.mean(np.diff(wanted)))
    assert rows[0]["public_people"] == SITE
    assert rows[0]["mean_hospitals"] == 2
    assert rows[0]["learning_people"] == rows[0]["tested_people"] == SITE


def test_resampling_counts_a_person_in_every_pair():
    ranks = np.array([[1], [0], [2]])  # one patient between two controls
    ill, well = pairs_of(np.array([1, 0, 0]), np.zeros(3))
    right = right_order(ranks, ill, well, [1])
    assert right.tolist() == [[1.0, 0.0]]
    weight = np.array([[3.0], [1.0]])
    assert resampled(right, weight).tolist() == [[0.5, 0.75]]


def test_a_group_with_few_pairs_is_left_out():
    right = np.ones((2, 30))
    both = np.stack([np.arange(30) < 21, np.arange(30) < 20])
    found = in_groups(right, both)
    assert found[:, 0].tolist() == [1.0, 1.0]
    assert np.isnan(found[:, 1]).all()


def test_calibration_by_hand():
    p, y = np.array([0.05, 0.05, 0.95, 1.0]), np.array([0, 1, 1, 1])
    assert calibration(p, y) == pytest.approx(0.5 * 0.45 + 0.5 * 0.025)


def test_areas_of_ranks_and_of_bits_are_those_of_scores():
    rng = numpy_rng(0, "areas")
    inside = rng.random(40) < 0.7
    scores = rng.normal(size=(40, 6))
    one = np.ones(inside.sum()), np.ones((~inside).sum())
    wanted = [auc(s[inside], s[~inside], *one) for s in scores.T]
    assert area_of_order(order_bits(scores, inside), 40) == pytest.approx(
        np.mean(wanted)
    )
    coarse = scores[:, 0].round(0)
    ranks = ranks_within(coarse[:, None], np.zeros(40))[:, 0]
    wanted = auc(coarse[inside], coarse[~inside], *one)
    assert area_of_ranks(ranks, inside) == pytest.approx(float(wanted))


def test_rows_of_attacks_are_those_of_the_scores():
    stored, scores = small_attacks()
    people, (cell,) = stored.people["made.npz"], stored.cells
    rows = {row["row"]: row for row in attack_rows(people, cell)}
    assert list(rows) == list(NAMES)
    assert np.isnan([rows[PUBLIC][attack] for attack in ATTACKS]).all()
    for (name, attack), partitions in scores.items():
        areas = []
        for roles, each in zip(cell.roles, partitions, strict=True):
            inside = roles[roles >= 2] == 2
            one = np.ones(SITE), np.ones(SITE)
            areas += [auc(s[inside], s[~inside], *one) for s in each.T]
        assert rows[name][attack] == pytest.approx(np.mean(areas))
        assert rows[name]["ceiling"] == ceiling_of(PLANS[name][0])
    for k, name in enumerate(NAMES):
        parts = zip(cell.roles, np.split(cell.arrays["chance"], 2), strict=True)
        wanted = [calibration(p[:, k] / WHOLE, people.y[r == 3]) for r, p in parts]
        assert rows[name]["ece"] == pytest.approx(np.mean(wanted))


# -- the stored files ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["sums", "sums_attacks"])
@pytest.mark.parametrize("number", [0, -1])
def test_the_spreadsheet_follows_from_the_stored_scores(name, number):
    """Of the first and the last cell; `make_tables.py --check` compares all."""
    lines = (RESULTS / f"{name}.csv").read_text().splitlines()
    made = sheet(rows_of_cell(sums(name), number)).splitlines()
    n = len(made) - 1
    assert made[0] == lines[0]
    assert made[1:] == (lines[-n:] if number else lines[1 : n + 1])


def test_pages_are_made_from_the_spreadsheets_of_now(monkeypatch):
    monkeypatch.setattr("sums_tables._SHEETS", {})
    use({"sums": "file,row\nmade.npz,two aggregators\n"})
    assert rows_of("sums") == ({"file": "made.npz", "row": "two aggregators"},)
    monkeypatch.undo()
    rows_of.cache_clear()
    assert len(rows_of("sums")) == 126


@pytest.mark.parametrize("name", ["sums", "sums_attacks"])
def test_stored_scores_are_small_and_of_the_commit_beside_them(name):
    about = json.loads((RESULTS / f"{name}.json").read_text())
    found = sums(name).about
    assert {key: found[key] for key in about} == about
    assert (RESULTS / f"{name}.npz").stat().st_size < 2.5e6


def test_every_partition_tests_people_of_hospitals_alone():
    for name in ("sums", "sums_attacks"):
        stored = sums(name)
        for cell in stored.cells:
            people = stored.people[cell.file]
            assert sorted(people.place.tolist()) == sorted(set(people.place.tolist()))
            for roles in cell.roles:
                public = set(people.site[roles == 1].tolist())
                assert public.isdisjoint(people.site[roles != 1].tolist())


def test_a_row_of_the_spreadsheet_is_its_cell():
    with (RESULTS / "sums.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    titles = [title for cell in sums("sums").cells for title, _ in cell.columns]
    assert [row["row"] for row in rows] == titles
    assert set(GROUPS) < set(rows[0])
