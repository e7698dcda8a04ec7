"""What a diagnosis means: control (0), patient (1), a further group, or somebody left out.

Two groups are compared, or those that are listed. Words that say by themselves which group they
mean need nothing; a table with a second disorder, or with other words, names its groups:
``positive`` and ``negative``, or ``classes`` where they are more than two.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fcforge.messages import DataError, listed

Words = str | Sequence[str] | None
# Words of disorders as tables of ABIDE, ADHD-200, REST-meta-MDD and B-SNIP write them.
DISORDERS = {
    "": "1, true, patient, patients, case",
    "ASD": "asd, autism, autistic, asperger, asperger's, aspergers, pdd-nos",
    "ADHD": "adhd, adhd-c, adhd-i, adhd-h, adhd-combined, adhd-inattentive, adhd-hyperactive",
    "MDD": "mdd, depression, major depressive disorder",
    "SZ": "sz, scz, szp, schizophrenia, schizophrenia proband",
    "SZA": "sza, sadp, schizoaffective, schizoaffective disorder",
    "BD": "bd, bp, bpp, bipolar, bipolar disorder, bipolar proband",
}
# Words for patients, and the disorder that each names ("" where it names none).
PATIENTS = {
    word: disorder for disorder, words in DISORDERS.items() for word in listed(words)
}
CONTROLS = listed(
    "0, false, tc, td, tdc, hc, nc, cn, con, ctrl, control, controls, healthy, healthy control, "
    "healthy controls, normal control, typically developing"
)
# ABIDE's DX_GROUP counts 1 = autism, 2 = control; elsewhere a 2 could mean anything.
CONTROLS_OF_COLUMN = {"dx_group": ("2",)}
MISSING = ("", *listed("., n/a, #n/a, #nv, na, nan, null, -999, -9999, -9999.0"))
NAME_THEM = (
    "Name both groups: --positive VALUE --negative VALUE (of a start or a config: "
    "--set dataset.positive=VALUE and so on); others are left out."
)
SEVERAL = 'More than two groups: --set \'dataset.classes=["HC", "SZ", "BP"]\', controls first.'


def is_missing(value: str) -> bool:
    """Whether a cell says nothing."""
    return _plain(value) in MISSING


def _plain(word: str) -> str:
    """A word as it is compared: without case, odd spaces and wide letters."""
    return unicodedata.normalize("NFKC", word).strip().casefold()


def label_of(value: str, column: str = "") -> int:
    """0 or 1 for a word that says it by itself; an error that lists the known ones for others.

    Examples
    --------
    >>> label_of("ASD"), label_of("HC"), label_of("2", column="DX_GROUP")
    (1, 0, 0)
    """
    word = _plain(value)
    if word in PATIENTS:
        return 1
    if word in (*CONTROLS, *CONTROLS_OF_COLUMN.get(column.lower(), ())):
        return 0
    patients = ", ".join(listed(words)[0] for words in DISORDERS.values())
    controls = ", ".join(CONTROLS[:8])
    known = f"Known for patients: {patients}; for controls: {controls}; and their like."
    do = f"{known} {NAME_THEM} {SEVERAL}"
    raise DataError(f"unknown diagnosis '{value.strip()}'.", do=do)


@dataclass(frozen=True)
class Groups:
    """The groups that are compared.

    Attributes
    ----------
    words : tuple of tuple of str
        Diagnoses of each group in small letters, controls first; none where the words say it.
    column : str
        Where the diagnoses stand.
    """

    words: tuple[tuple[str, ...], ...] = ()
    column: str = ""

    @classmethod
    def of(
        cls,
        values: Iterable[str],
        positive: Words = None,
        negative: Words = None,
        column: str = "",
        classes: Sequence[str] = (),
        partial: bool = False,
    ) -> Groups:
        """Groups of a column of diagnoses.

        Parameters
        ----------
        values : iterable of str
        positive, negative : str (several joined by commas) or sequence of str, optional
            Diagnoses of each group as the data write them. With one of them, the only other
            diagnosis is the other group.
        column : str
        classes : sequence of str (several diagnoses of a group joined by commas)
            More than two groups, controls first.
        partial : bool
            Some of them need not be there, but one must be.

        Raises
        ------
        DataError
            Two disorders and no groups named, a diagnosis in two groups, or groups that are not
            in the data.
        """
        counts = Counter(v.strip() for v in values if not is_missing(v))
        if classes and (positive or negative or len(classes) < 3):
            what = f"classes = {list(classes)} lists three groups or more, and nothing else does."
            raise DataError(what, do=NAME_THEM)
        words = [_listed(group) for group in classes or (negative, positive)]
        named = [word for group in words for word in set(group)]
        if not named:
            _refuse_two_disorders(counts)
            return cls(column=column)
        known = {_plain(value) for value in counts}
        if not all(words):
            words[words.index(())] = _the_other(known - {*named}, counts)
        for word, times in Counter(named).items():
            if times > 1:
                what = f"the diagnosis '{word}' is named in {times} groups."
                raise DataError(what, do="Name each diagnosis in one group only.")
        absent = [", ".join(group) for group in words if known.isdisjoint(group)]
        everything = len(absent) == len(words) and bool(known)
        if everything or (absent and not partial):
            told = "' or '".join(absent if everything else absent[:1])
            what = f"nobody has the diagnosis '{told}'; there are: {_told(counts)}."
            raise DataError(what, do="Name the diagnoses as the data write them.")
        return cls(tuple(words), column)

    def label(self, value: str) -> int | None:
        """0 for a control, 1 for a patient, or the place of its group; None for another.

        Raises
        ------
        DataError
            No diagnosis, or a word that does not say which group it means.
        """
        if is_missing(value):
            do = (
                "Fill it in, or leave such people out: --drop-unlabelled (of a start or a config: "
                "--set dataset.drop_unlabelled=true)."
            )
            raise DataError("has no diagnosis.", do=do)
        if not self.words:
            return label_of(value, self.column)
        word = _plain(value)
        found = (place for place, group in enumerate(self.words) if word in group)
        return next(found, None)


def _listed(words: Words) -> tuple[str, ...]:
    several = words.split(",") if isinstance(words, str) else words or ()
    return tuple(_plain(str(word)) for word in several)


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{value} ({n})" for value, n in sorted(counts.items()))


def _the_other(rest: set[str], counts: Counter[str]) -> tuple[str, ...]:
    if len(rest) != 1:
        what = f"one group is named, and the other could be several: {_told(counts)}."
        raise DataError(what, do=NAME_THEM)
    return tuple(rest)


def _refuse_two_disorders(counts: Counter[str]) -> None:
    words = {_plain(value) for value in counts}
    disorders = {PATIENTS[word] for word in words if word in PATIENTS}
    if len(disorders) > 1:
        what = f"more than two diagnoses: {_told(counts)}; two groups are compared."
        do = f"{NAME_THEM} Several diagnoses in one group: joined by commas. {SEVERAL}"
        raise DataError(what, do=do)
