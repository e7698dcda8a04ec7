"""Sites and covariates of the rows of X."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score

from fcforge.data.folder import load_folder
from fcforge.estimator import ForgeClassifier, InputError, people
from fcforge.estimator.people import columns_of, compare_site_names, site_names


@pytest.mark.parametrize(
    ("site", "names"),
    [
        (None, ["site-1"] * 3),
        ("NYU", ["NYU"] * 3),
        (7, ["7"] * 3),
        (["b", "a", "b"], ["b", "a", "b"]),
        (np.array([1, 2, 1]), ["1", "2", "1"]),
        (np.array([1.0, 2.0, 1.0]), ["1", "2", "1"]),
        (pd.Series([" x", "y ", "x"], index=[5, 6, 7]), ["x", "y", "x"]),
        (pd.Categorical(["u", "v", "u"]), ["u", "v", "u"]),
    ],
)
def test_names_of_sites(site, names) -> None:
    assert site_names(site, 3, "site-1").tolist() == names


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ("", "'', which is not the name of a site"),
        ("  ", "is not the name of a site"),
        (np.nan, "nan, which is not the name"),
        (["a", "", "b"], r"site\[1\] is '', which is not the name"),
        (["a", None, "b"], r"site\[1\] is None, which is not the name"),
        ([1.0, 2.0, np.nan], r"site\[2\] is nan, which is not the name"),
        (pd.Series(["a", pd.NA, "b"]), r"site\[1\]"),
        ([1.5, 2.0, 1.0], r"site\[0\] is 1.5, which is not the name"),
        (True, "True, which is not the name"),
        (["a", "b"], r"shape \(2,\), but X has 3 subjects"),
        ([["a"], ["b"], ["c"]], r"shape \(3, 1\)"),
    ],
)
def test_what_is_no_site_is_refused(site, message) -> None:
    with pytest.raises(ValueError, match=message):
        site_names(site, 3, "site-1")


def test_covariates_of_a_mapping_or_a_frame() -> None:
    assert columns_of(None, 2) == {}
    table = pd.DataFrame({"age": [20, 30]}, index=[7, 9])
    assert columns_of(table, 2)["age"].tolist() == [20, 30]
    with pytest.raises(ValueError, match="have no names"):
        columns_of(np.zeros((2, 1)), 2)
    with pytest.raises(ValueError, match="covariate 'age' has shape"):
        columns_of({"age": [1, 2, 3]}, 2)


def test_the_same_people_under_two_sites_are_noticed(subjects) -> None:
    fc, y, _ = subjects
    half = np.where(np.arange(len(y)) < len(y) // 2, "A", "B")
    twice, again = fc.copy(), [*range(len(y)), 0]
    twice[-1] = fc[0]
    words = rf"X\[{len(y) - 1}\] of site 'B' has exactly the FC of a subject of site 'A'.*drop one"
    with pytest.raises(InputError, match=words):
        ForgeClassifier("ridge").fit(twice, y, site=half)
    with pytest.warns(UserWarning, match=r"looks like the scan of X\[0\] of site 'A'"):
        ForgeClassifier("ridge").fit(fc[again], y[again], site="A")
    model = ForgeClassifier("ridge").partial_fit(fc, y, site="A")
    with pytest.raises(InputError, match=r"X\[0\] of site 'B' has exactly the FC"):
        model.partial_fit(fc, y, site="B")
    assert model.sites_ == ("A",)
    with pytest.warns(UserWarning, match="of site 'site-2' has exactly the FC"):
        model.partial_fit(fc, y)
    model.fit(fc, y).fit(fc, y, site="B")  # from scratch: nobody was there before


def test_people_who_look_alike_at_two_sites_are_a_warning(subjects) -> None:
    fc, y, _ = subjects
    half = np.where(np.arange(len(y)) < len(y) // 2, "A", "B")
    twice = fc.copy()
    twice[-1] = 0.999 * fc[0] + 0.001 * np.eye(10)
    words = rf"X\[{len(y) - 1}\] of site 'B' looks like the scan of X\[0\] of site 'A'"
    with pytest.warns(UserWarning, match=words):
        ForgeClassifier("ridge").fit(twice, y, site=half)


def test_people_who_look_alike_at_one_site_share_a_warning(subjects) -> None:
    fc, y, _ = subjects
    near = 0.999 * fc[:2] + 0.001 * np.eye(10)
    twice, opposite = np.concatenate([fc, near]), np.concatenate([y, 1 - y[:2]])
    words = "looks like the scan of X.0. .*who has another diagnosis.* There are 1 more such pairs"
    with pytest.warns(UserWarning, match=words) as caught:
        ForgeClassifier("ridge").fit(twice, opposite, site="A")
    assert len(caught) == 1


def test_a_class_that_the_site_gives_away_is_a_warning(subjects) -> None:
    fc, y, _ = subjects
    words = r"Everybody at the sites of class '0' \(0\) has that class"
    with pytest.warns(UserWarning, match=words):
        ForgeClassifier("ridge").fit(fc, y, site=y)
    mixed = np.where(np.arange(len(y)) < len(y) // 2, "A", "B")
    model = ForgeClassifier("ridge").fit(fc, y, site=mixed)  # no warning
    assert model._sites_of_class == {0: {"A", "B"}, 1: {"A", "B"}}


def test_a_site_of_one_class_is_a_warning(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    half = np.where(np.arange(len(y)) < len(y) // 2, "A", "B")
    keep = (half == "A") | (y == 0)
    n = int(((half == "B") & keep).sum())
    words = rf"site 'B' has no patients \({n} controls, 0 patients\)\. The model may learn the site"
    with pytest.warns(UserWarning, match=words):
        ForgeClassifier("ridge").fit(fc[keep], y[keep], site=half[keep])
    a, later = half == "A", (half == "B") & (y == 0)
    model = ForgeClassifier("ridge").fit(fc[a], y[a], site="A")
    model.save(tmp_path / "a.safetensors")
    with pytest.warns(UserWarning, match=words):
        model.partial_fit(fc[later], y[later], site="B")
    patients = (half == "B") & (y == 1)
    model.partial_fit(
        fc[patients], y[patients], site="B"
    )  # no warning: now it has both
    # a loaded model does not know the classes of site A
    loaded = ForgeClassifier.load(tmp_path / "a.safetensors")
    loaded.partial_fit(fc[later], y[later], site="A")


def test_a_site_for_each_person_is_refused(subjects) -> None:
    fc, y, _ = subjects
    with pytest.raises(
        InputError, match=rf"{len(y)} sites of one person each.*hospital"
    ):
        ForgeClassifier("ridge").fit(fc, y, site=np.arange(len(y)))


def test_a_generator_without_use_is_a_warning(subjects) -> None:
    fc, y, _ = subjects
    words = "generator='corr_gauss' has no effect: method 'er' replays no synthetic subjects"
    with pytest.warns(UserWarning, match=words):
        ForgeClassifier("er", generator="corr_gauss", epochs=1).fit(fc, y)


def test_a_model_that_calls_all_the_same_says_so(subjects, recwarn) -> None:
    fc, y, _ = subjects
    lazy = ForgeClassifier("finetune", "linear", epochs=1, lr=1e-9)
    with pytest.warns(
        UserWarning,
        match=r"ForgeClassifier\('finetune'\) predicts a single class, 'TC', for all 30",
    ):
        lazy.fit(fc[:30], np.where(y[:30] == 1, "ASD", "TC"))
    recwarn.clear()
    ForgeClassifier("ridge").fit(fc, y)
    assert not recwarn.list


@pytest.mark.parametrize("value", ["n/a", "", "nan", "-9999"])
def test_words_for_missing_are_no_class(value) -> None:
    labels = np.array(["ASD", "HC", value, "HC"])
    with pytest.raises(InputError, match=r"y\[2\]"):
        people.refuse_missing(labels)


def test_one_site_in_two_spellings_is_refused() -> None:
    with pytest.raises(InputError, match="'NYU' and 'nyu'"):
        site_names(["NYU", "UM", "nyu"], 3, "")


def test_site_names_of_later_calls_are_compared(subjects) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier("ridge").partial_fit(fc[:30], y[:30], site="UM1")
    with pytest.raises(InputError, match="'UM1' and 'um1'"):
        model.partial_fit(fc[30:], y[30:], site="um1")
    assert model.sites_ == ("UM1",)
    with pytest.warns(UserWarning, match="'UM1' and 'UM_1' look alike"):
        model.partial_fit(fc[30:60], y[30:60], site="UM_1")
    with warnings.catch_warnings():  # both are known by now
        warnings.simplefilter("error")
        model.partial_fit(fc[60:], y[60:], site="UM_1")


def test_every_new_pair_of_look_alikes_is_a_warning() -> None:
    known = ["NYU1", "NYU_1", "UM1"]
    with pytest.warns(UserWarning, match="'UM1' and 'UM_1' look alike"):
        compare_site_names(["UM_1"], known)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare_site_names(["Leuven", "NYU1"], known)


def test_sites_that_look_alike_in_one_call_are_a_warning(subjects) -> None:
    fc, y, _ = subjects
    site = np.where(np.arange(len(y)) < len(y) // 2, "NYU", "\u039dYU")  # Greek Nu
    with pytest.warns(UserWarning, match="look alike, and are learned as two sites"):
        ForgeClassifier("ridge").fit(fc, y, site=site)


def test_a_first_site_with_a_single_class_is_a_warning(subjects) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier("ridge")
    with pytest.warns(UserWarning, match="all 30 people learned so far are of class 1"):
        model.partial_fit(fc[:30], np.ones(30, int), classes=[0, 1], site="A")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(fc[30:], y[30:], site="B")


def test_one_class_in_two_spellings_is_refused(subjects) -> None:
    with pytest.raises(InputError, match=r"'ASD'.*'asd'"):
        people.refuse_missing(np.array(["ASD", "HC", "asd"]))
    people.refuse_missing(np.array([0, 1, 2]))
    fc, y, _ = subjects
    words = np.where(y == 1, "ASD", "HC")
    with pytest.raises(InputError, match=r"'ASD'.*'asd'"):
        ForgeClassifier("ridge").partial_fit(fc, words, classes=["ASD", "asd", "HC"])


@pytest.mark.parametrize("nothing", [None, pd.NA, np.nan])
def test_a_label_that_is_none_is_named_with_its_row(nothing) -> None:
    y = np.array(["HC", "ASD"] * 10, dtype=object)
    y[3] = nothing
    with pytest.raises(InputError, match=r"y\[3\] is .*missing"):
        ForgeClassifier(features="any").fit(np.eye(20)[:, :6], y)


# -- codes of classes that differ between sites ----------------------------------------------------
def at_two_sites(subjects, one, other):
    """FC, classes in the codes of each site (controls, patients), and sites."""
    fc, y, site = subjects
    first = site == site[0]
    return fc, np.where(first, np.take(one, y), np.take(other, y)), site


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0, 1), (1, 2)),
        ((0, 1), (-1, 1)),
        ((0.0, 1.0), (1.0, 2.0)),
        (("0", "1"), ("1", "2")),
        (("HC", "ASD"), ("TC", "ASD")),
        (("HC", "ASD"), ("0", "1")),
    ],
)
@pytest.mark.parametrize("features", ["fc", "any"])
def test_one_coding_at_each_site_is_refused(subjects, one, other, features) -> None:
    X, y, site = at_two_sites(subjects, one, other)
    if features == "any":
        X = X[:, 0, 1:]
    model = ForgeClassifier("ridge", features=features)
    with pytest.raises(InputError, match=r"y: sites code .*\(Sim-.*recode them"):
        model.fit(X, y, site=site)
    assert not hasattr(model, "model_")


def test_a_later_site_with_another_coding_is_refused(subjects, tmp_path) -> None:
    X, y, site = at_two_sites(subjects, (0, 1), (1, 2))
    a, b = (site == name for name in dict.fromkeys(site.tolist()))
    listed = ForgeClassifier("ridge").partial_fit(X[a], y[a], classes=[0, 1, 2])
    two = ForgeClassifier("ridge").fit(X[a], y[a])
    for name, model in (("listed", listed), ("two", two)):
        model.save(tmp_path / name)
        with pytest.raises(InputError, match=r"0 and 1 \(site-1\); 1 and 2 \(site-2\)"):
            model.partial_fit(X[b], y[b])
        assert model.sites_ == ("site-1",)
    loaded = ForgeClassifier.load(tmp_path / "two")
    with pytest.raises(InputError, match=r"0 and 1 \(site-1\); 1 and 2 \(B\)"):
        loaded.partial_fit(X[b], y[b], site="B")


def test_words_and_listed_disorders_are_three_classes(subjects) -> None:
    X, words, site = at_two_sites(subjects, ("HC", "SZ"), ("HC", "BP"))
    with pytest.warns(UserWarning, match="'BP' and 'SZ' are at no site together"):
        model = ForgeClassifier("ridge").fit(X, words, site=site)
    assert model.classes_.tolist() == ["BP", "HC", "SZ"]
    _, numbers, _ = at_two_sites(subjects, (0, 1), (0, 2))
    with pytest.raises(InputError, match="sites code the diagnosis differently"):
        ForgeClassifier("ridge").fit(X, numbers, site=site)
    listed = ForgeClassifier("ridge")
    with pytest.warns(UserWarning, match="1 and 2 are at no site together"):
        listed.partial_fit(X, numbers, classes=[0, 1, 2], site=site)
    assert listed.classes_.tolist() == [0, 1, 2]


def test_a_site_with_one_of_the_classes_is_no_other_coding(subjects) -> None:
    fc, y, site = subjects
    keep = (site == site[0]) | (y == 1)
    with pytest.warns(UserWarning, match="no controls"):
        ForgeClassifier("ridge").fit(fc[keep], y[keep], site=site[keep])


def test_a_site_with_words_of_its_own_is_a_warning(subjects) -> None:
    X, words, site = at_two_sites(subjects, ("HC", "SZ"), ("sano", "enfermo"))
    b = list(dict.fromkeys(site.tolist()))[1]
    message = rf"No other site has a class of site '{b}' \('enfermo' and 'sano'\)"
    with pytest.warns(UserWarning, match=message):
        ForgeClassifier("ridge").fit(X, words, site=site)


def test_two_mistyped_labels_do_not_switch_the_check_off(subjects) -> None:
    """Cells of 2 at a site of 0 and 1 showed that 2 is a third class."""
    X, y, site = at_two_sites(subjects, (0, 1), (1, 2))
    y[np.flatnonzero(site == site[0])[:2]] = 2
    words = r"0 and 1 \(Sim-NYU\); 1 and 2 .* 2 people of site 'Sim-NYU' have the code 2: mistyped"
    with pytest.raises(InputError, match=words):
        ForgeClassifier("ridge").fit(X, y, site=site)


def test_a_mistyped_label_is_a_warning(subjects) -> None:
    fc, y, site = subjects
    y = y.copy()
    y[0] = 2
    with pytest.warns(UserWarning, match="1 person of site 'Sim-NYU' has the code 2"):
        ForgeClassifier("ridge").fit(fc, y, site=site)


def test_codes_that_are_all_meant_are_learned(subjects, tmp_path) -> None:
    """The refusal names the way out."""
    X, y, site = at_two_sites(subjects, (0, 1), (1, 2))
    with pytest.raises(InputError, match="allow_unlike_codes=True"):
        ForgeClassifier("ridge").fit(X, y, site=site)
    model = ForgeClassifier("ridge", allow_unlike_codes=True)
    with pytest.warns(UserWarning, match="y: sites code the diagnosis differently"):
        model.fit(X, y, site=site)
    assert model.classes_.tolist() == [0, 1, 2]
    model.save(tmp_path / "model")
    again = ForgeClassifier.load(tmp_path / "model")
    assert again.allow_unlike_codes
    b = site == site[-1]
    new = 1e-3 * np.ones((10, 10)) + 0.999 * X[b]  # further people of a known coding
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(swapped|class)")
        again.partial_fit(new, y[b], site="C")


@pytest.mark.parametrize("method", ["ridge", "finetune"])
def test_new_classes_at_every_site_are_learned(method) -> None:
    """Class-incremental learning of listed classes, the benchmark of continual learning."""
    X, y = load_digits(return_X_y=True)
    keep = y < 6
    X, y = X[keep] / 16, y[keep]
    model = ForgeClassifier(method, features="any", epochs=2)
    for k in range(0, 6, 2):
        of_site = np.isin(y, (k, k + 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model.partial_fit(X[of_site], y[of_site], classes=range(6))
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5]
    if method == "ridge":
        assert (model.predict(X) == y).mean() > 0.9


def test_listed_disjoint_codes_are_a_warning(subjects) -> None:
    X, y, site = at_two_sites(subjects, (0, 1), (2, 3))
    with pytest.raises(InputError, match="sites code the diagnosis differently"):
        ForgeClassifier("ridge").fit(X, y, site=site)
    a, b = (site == name for name in dict.fromkeys(site.tolist()))
    model = ForgeClassifier("ridge").partial_fit(X[a], y[a], classes=range(4))
    with pytest.warns(UserWarning, match="y: sites code the diagnosis differently"):
        model.partial_fit(X[b], y[b])


def test_cross_validation_without_the_site_of_all_codes(subjects) -> None:
    fc, y, site = subjects
    X = fc[:, 0, 1:]
    site = np.where(np.arange(len(y)) % 3, site, "all")
    y = np.where(site == "all", np.arange(len(y)) % 9 // 3, y + (site == site[-1]))
    scores = {}
    for allowed in (False, True):
        model = ForgeClassifier("ridge", features="any", allow_unlike_codes=allowed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores[allowed] = cross_val_score(
                model, X, y, groups=site, cv=LeaveOneGroupOut(), params={"site": site}
            )
    assert np.isnan(scores[False]).sum() == 1
    assert not np.isnan(scores[True]).any()


def test_people_of_weight_zero_have_no_coding(subjects) -> None:
    X, y, site = at_two_sites(subjects, (0, 1), (1, 2))
    weight = (site == site[0]).astype(float)
    with pytest.raises(InputError, match="sites code"):
        ForgeClassifier("ridge").fit(X, y, site=site)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ForgeClassifier("ridge").fit(X, y, site=site, sample_weight=weight)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("TC", "ASD"), ("typical", "ASD")),
        (("TC", "ASD"), ("HV", "ASD")),
        (("TC", "ASD"), ("TC", "autism")),
        (("TC", "ASD"), ("TC", "patient")),
    ],
)
def test_two_words_for_one_group_are_refused(subjects, one, other) -> None:
    X, y, site = at_two_sites(subjects, one, other)
    with pytest.raises(InputError, match=r"y: sites code .*one word at all sites"):
        ForgeClassifier("ridge").fit(X, y, site=site)


def test_numbers_behind_a_word_are_refused(subjects) -> None:
    X, y, site = at_two_sites(subjects, ("G0", "G1"), ("G1", "G2"))
    message = r"y: sites code .*G0 and G1 \(.*G1 and G2 \(.*name them by words"
    with pytest.raises(InputError, match=message):
        ForgeClassifier("ridge").fit(X, y, site=site)
    with pytest.warns(UserWarning, match="sites code the diagnosis differently"):
        ForgeClassifier("ridge", allow_unlike_codes=True).fit(X, y, site=site)


def test_words_that_are_never_at_one_site_are_a_warning(subjects) -> None:
    X, y, site = at_two_sites(subjects, ("Ga", "Gb"), ("Gb", "Gc"))
    message = "'Ga' and 'Gc' are at no site together"
    with pytest.warns(UserWarning, match=message) as caught:
        ForgeClassifier("ridge").fit(X, y, site=site)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("listed", [None, [0, 1, 2]])
def test_a_file_keeps_the_codes_of_every_site(subjects, listed, tmp_path) -> None:
    """After load, 1 and 2 beside the listed 0, 1 and 2 went unnoticed."""
    X, y, site = at_two_sites(subjects, (0, 1), (1, 2))
    a, b = (site == name for name in dict.fromkeys(site.tolist()))
    model = ForgeClassifier("ridge").partial_fit(X[a], y[a], classes=listed, site="A")
    model.save(tmp_path / "model")
    loaded = ForgeClassifier.load(tmp_path / "model")
    assert loaded._people_of_class == model._people_of_class
    assert loaded._sites_of_class == model._sites_of_class
    with pytest.raises(InputError, match=r"0 and 1 \(A\); 1 and 2 \(B\)"):
        loaded.partial_fit(X[b], y[b], site="B")


def test_a_file_without_codes_is_a_warning(subjects, tmp_path) -> None:
    X, y, site = at_two_sites(subjects, (0, 1), (1, 2))
    a, b = (site == name for name in dict.fromkeys(site.tolist()))
    model = ForgeClassifier("ridge").partial_fit(X[a], y[a], classes=[0, 1, 2])
    model._people_of_class = {}  # as files of earlier versions
    model.save(tmp_path / "model")
    loaded = ForgeClassifier.load(tmp_path / "model")
    message = "not known which classes each earlier site"
    with pytest.warns(UserWarning, match=message) as caught:
        loaded.partial_fit(X[b], y[b], site="B")
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ((0, 1), ("TC", "ASD"), "numbers and texts, for example .* and '"),
        ((False, True), (1, 2), "truth values and numbers"),
    ],
)
def test_values_of_two_kinds_are_refused(subjects, one, other, words) -> None:
    X, y, site = subjects
    first = site == site[0]
    mixed = [(one if a else other)[k] for k, a in zip(y, first, strict=True)]
    with pytest.raises(InputError, match=f"y holds {words}.*Write every class"):
        ForgeClassifier("ridge").fit(X, np.array(mixed, dtype=object), site=site)


# -- swapped diagnoses -----------------------------------------------------------------------------
@pytest.mark.data
def test_fit_checks_every_site_by_the_model_of_those_before(shared_data) -> None:
    """The swapped site went unnoticed by `fit`, although `partial_fit` warned of it."""
    cohort = load_folder(
        shared_data / "abide1_aal116.npz", sites=["USM", "PITT"]
    ).select_sites(["USM", "PITT"])
    order = np.argsort(cohort.site == "PITT", kind="stable")
    fc, y, site = cohort.fc[order], cohort.y[order], cohort.site[order]
    ForgeClassifier("ridge").fit(fc, y, site=site)  # a warning would be an error
    swapped = np.where(site == "PITT", 1 - y, y)
    with pytest.warns(UserWarning, match="site 'PITT': .* look swapped") as caught:
        ForgeClassifier("ridge").fit(fc, swapped, site=site)
    assert len(caught) == 1
    assert caught[0].filename == __file__
