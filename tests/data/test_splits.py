"""A split depends on the seed, the site's name and the site's own subjects, on nothing else."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcforge.core.errors import DataError
from fcforge.core.spec import Conditions
from fcforge.data.cohort import Cohort
from fcforge.data.splits import make_sites, split_counts, split_site


def cohort_of(sizes: dict[str, tuple[int, int]], n_rois: int = 4) -> Cohort:
    """Cohort with (controls, patients) per site; FC encodes the subject's number."""
    site = [s for s, counts in sizes.items() for _ in range(sum(counts))]
    label = [y for counts in sizes.values() for y in (0, 1) for _ in range(counts[y])]
    n = len(site)
    fc = np.tile(np.eye(n_rois, dtype=np.float32), (n, 1, 1))
    rng = np.random.default_rng(0)
    upper = rng.uniform(-0.5, 0.5, (n, n_rois, n_rois)).astype(np.float32)
    off = np.triu(upper, 1)
    fc += off + off.transpose(0, 2, 1)
    return Cohort(
        name="made",
        fc=fc,
        y=np.array(label),
        site=np.array(site),
        subject_id=np.array([f"p{i:03d}" for i in range(n)]),
        covariates={"age": np.arange(n, dtype=float)},
    )


def asked(test: float, val: float) -> Conditions:
    return Conditions(test_fraction=test, val_fraction=val)


SIZES = {"A": (11, 9), "B": (20, 10), "C": (5, 8)}


def test_counts_by_hand():
    assert split_counts(10, 0.3, 0.2) == (6, 1, 3)  # 7 left, 1.4 -> 1
    assert split_counts(98, 0.3, 0.2) == (55, 14, 29)  # 29.4 -> 29; 13.8 -> 14
    assert split_counts(5, 0.3, 0.0) == (3, 0, 2)  # 1.5 -> 2
    assert split_counts(4, 0.1, 0.1) == (2, 1, 1)


def test_exactly_stratified_and_complete():
    cohort = cohort_of(SIZES)
    for name, site in make_sites(cohort, seed=3).items():
        for cls in (0, 1):
            expected = split_counts(SIZES[name][cls], 0.3, 0.2)
            got = tuple(
                int((b.y == cls).sum()) for b in (site.train, site.val, site.test)
            )
            assert got == expected
        ids = [i for split in ("train", "val", "test") for i in site.subject_ids[split]]
        assert sorted(ids) == sorted(cohort.subject_id[cohort.site == name])


def test_rows_travel_together():
    cohort = cohort_of(SIZES)
    place = {s: i for i, s in enumerate(cohort.subject_id.tolist())}
    site = split_site(cohort, "B", seed=0)
    for split, batch in (("train", site.train), ("val", site.val), ("test", site.test)):
        rows = [place[i] for i in site.subject_ids[split]]
        np.testing.assert_array_equal(batch.fc.numpy(), cohort.fc[rows])
        np.testing.assert_array_equal(batch.y.numpy(), cohort.y[rows])
        np.testing.assert_array_equal(site.covariates[split]["age"], rows)
    assert site.train.fc.dtype == torch.float32
    assert site.train.y.dtype == torch.int64


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), order=st.permutations(range(63)))
def test_row_and_site_order_do_not_matter(seed, order):
    cohort = cohort_of(SIZES)
    shuffled = cohort.select(np.array(order))
    for name in SIZES:
        one, two = split_site(cohort, name, seed), split_site(shuffled, name, seed)
        alone = split_site(cohort.select_sites([name]), name, seed)
        assert one.subject_ids == two.subject_ids == alone.subject_ids
        assert torch.equal(one.train.fc, two.train.fc)
        assert one.subject_ids == two.subject_ids


@settings(max_examples=40, deadline=None)
@given(
    controls=st.integers(4, 60),
    patients=st.integers(4, 60),
    test=st.floats(0.1, 0.5),
    val=st.floats(0.0, 0.4),
    seed=st.integers(0, 100),
)
def test_splits_are_disjoint(controls, patients, test, val, seed):
    site = split_site(
        cohort_of({"A": (controls, patients)}), "A", seed, asked(test, val)
    )
    ids = [set(site.subject_ids[s]) for s in ("train", "val", "test")]
    assert sum(map(len, ids)) == len(set.union(*ids)) == controls + patients
    for cls, n in ((0, controls), (1, patients)):
        n_test = int((site.test.y == cls).sum())
        assert abs(n_test - test * n) <= 0.5 or n_test == 1
        assert int((site.train.y == cls).sum()) >= 1
        assert (int((site.val.y == cls).sum()) > 0) == (val > 0)


def test_seed_and_name_matter():
    cohort = cohort_of({"A": (30, 30)})
    renamed = cohort.merge_sites({"B": ["A"]})
    splits = {
        split_site(cohort, "A", 0).subject_ids["test"],
        split_site(cohort, "A", 1).subject_ids["test"],
        split_site(renamed, "B", 0).subject_ids["test"],
    }
    assert len(splits) == 3


def test_every_subject_is_tested_about_equally_often():
    cohort = cohort_of({"A": (10, 10)})
    tested = Counter(
        i for s in range(200) for i in split_site(cohort, "A", s).subject_ids["test"]
    )
    assert len(tested) == 20
    assert min(tested.values()) > 30  # expected 60, SD 6.5
    assert max(tested.values()) < 90


@pytest.mark.parametrize("sizes", [(12, 0), (0, 12), (12, 1)])
def test_sites_that_cannot_be_split(sizes):
    with pytest.raises(DataError, match=r"site 'A'.*too small to split"):
        split_site(cohort_of({"A": sizes}), "A", 0)


def test_make_sites_keeps_the_order_and_checks():
    cohort = cohort_of({**SIZES, "bad": (9, 0)})
    assert list(make_sites(cohort.select_sites(["C", "A"]), 0)) == ["C", "A"]
    with pytest.raises(DataError, match=r"(?s)1 error.*'bad'.*has no patients"):
        make_sites(cohort, 0)


@pytest.mark.parametrize(("test", "val"), [(0.97, 0.2), (0.3, 0.98), (0.99, 0.0)])
def test_fractions_that_leave_nobody_to_learn(test, val):
    with pytest.raises(DataError, match="site 'A': is too small to split"):
        split_site(cohort_of(SIZES), "A", 0, asked(test, val))


def test_duplicate_ids_and_odd_labels_are_refused():
    cohort = cohort_of(SIZES)
    cohort.subject_id[1] = cohort.subject_id[0]
    with pytest.raises(DataError, match="appears 2 times"):
        make_sites(cohort, 0)
    cohort = cohort_of(SIZES)
    cohort.y[0] = 2
    with pytest.raises(DataError, match="unknown label"):
        make_sites(cohort, 0)


def test_folds_test_everybody_once():
    cohort = cohort_of(SIZES)
    for repeat in (0, 1):
        sites = [
            split_site(cohort, "A", 3 * repeat + k, Conditions(folds=3))
            for k in range(3)
        ]
        tested = [i for s in sites for i in s.subject_ids["test"]]
        everybody = cohort.subject_id[cohort.site == "A"].tolist()
        assert sorted(tested) == sorted(everybody)
        sizes = [len(s.test) for s in sites]
        assert max(sizes) - min(sizes) <= 1
        for s in sites:
            parts = [set(s.subject_ids[p]) for p in ("train", "val", "test")]
            assert len(set.union(*parts)) == sum(map(len, parts)) == len(everybody)
    again = split_site(cohort, "A", 3, Conditions(folds=3))
    assert again.subject_ids["test"] == sites[0].subject_ids["test"]
    assert set(again.subject_ids["test"]) != set(
        split_site(cohort, "A", 0, Conditions(folds=3)).subject_ids["test"]
    )


def test_more_folds_than_a_class_has_are_refused():
    with pytest.raises(DataError, match=r"too small to split \(5 of a class\)"):
        split_site(cohort_of(SIZES), "C", 0, Conditions(folds=6))
