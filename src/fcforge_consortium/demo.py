"""A round of two keepers among simulated hospitals, by the functions that the commands call."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fcforge.core.estimate import Estimate
from fcforge.core.files import whole_folder
from fcforge.core.spec import Conditions
from fcforge.data.cohort import Cohort, write_people
from fcforge.data.simulated import simulate
from fcforge.data.splits import split_cohort
from fcforge_consortium.aggregation.aggregators import CARD, write_keeper
from fcforge_consortium.base_model.record import make_public
from fcforge_consortium.contributions import prediction
from fcforge_consortium.operations import (
    keep_files,
    learn_site,
    merge_files,
    start_file,
)
from fcforge_consortium.options import (
    KeepRequest,
    LearnRequest,
    MergeRequest,
    StartRequest,
)
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import write_keys

HOSPITALS = 6
PUBLIC_SITES = 4
EPSILON = 8.0
ROUND = "demo"
KEEPERS = ("Demo-University", "Demo-Ministry")
MERGED = "all.fcx"


@dataclass(frozen=True)
class Played:
    """A round that was played.

    Attributes
    ----------
    exchange : Exchange
        After the round.
    people, tested : int
        Who gave to the round, and on whom heads are measured.
    auroc : mapping of title to Estimate
        Of the public head, the consortium's and that of everybody's scans in one place.
    """

    exchange: Exchange
    people: int
    tested: int
    auroc: Mapping[str, Estimate]


def play_round(place: Path, n_rois: int = 40) -> Played:
    """Play a round, everything in files: six hospitals and two keepers in a new folder."""
    everybody = simulate("hard", n_rois=n_rois, n_sites=HOSPITALS + PUBLIC_SITES)
    names = everybody.site_names[:HOSPITALS]
    others = everybody.select_sites(everybody.site_names[HOSPITALS:])
    public = others.select(np.arange(0, len(others), 2))  # few: much is left to learn
    asked = Conditions(val_fraction=0)
    parts = [split_cohort(everybody, name, 0, asked) for name in names]
    learning = _those(everybody, [part["train"] for part in parts])
    tested = _those(everybody, [part["test"] for part in parts])
    with whole_folder(place) as folder:
        start = _start(folder, public, len(learning))
        for name in names:
            _give(folder / name, start, learning.select_sites([name]))
        files = [start, *_halves(folder, start)]
        merged = merge_files(MergeRequest(files, folder / MERGED))
    auroc = _measured(merged, _those(everybody, [public, learning]), tested)
    return Played(merged, len(learning), len(tested), auroc)


def _measured(
    merged: Exchange, everybody: Cohort, tested: Cohort
) -> dict[str, Estimate]:
    """AUROC of the heads before and after the round, and of one head on everybody."""
    rows = prediction.evaluate(merged, tested).rows
    pooled = prediction.evaluate(make_public(everybody), tested).rows
    return {
        "public head": rows["public head alone"]["auroc"],
        f"after the round, epsilon {EPSILON:g}": rows["exchange"]["auroc"],
        "everybody's scans in one place": pooled["exchange"]["auroc"],
    }


def _those(everybody: Cohort, parts: list[Cohort]) -> Cohort:
    """People who are in one of these parts."""
    ids = np.concatenate([part.subject_id for part in parts])
    return everybody.select(np.isin(everybody.subject_id, ids))


def _start(folder: Path, public: Cohort, people: int) -> Path:
    """A signed start that names two keepers."""
    key = folder / "maker.key"
    write_keys(key)
    cards = []
    for name in KEEPERS:
        place = folder / name
        write_keeper(place, name)
        cards.append(Path(f"{place}{CARD}"))
    out = folder / "start.fcx"
    asked = StartRequest(
        out=out,
        data=write_people(folder / "public.npz", public),
        sign=key,
        keeper=cards,
        people=people,
        hospitals=HOSPITALS,
        epsilon=EPSILON,
    )
    start_file(asked)
    return out


def _give(home: Path, start: Path, people: Cohort) -> None:
    """Write what a hospital gives to the round."""
    home.mkdir()
    data = write_people(home / "people.npz", people)
    key = home / "key"
    write_keys(key)
    site = people.site_names[0]
    place = (site, data, home / f"{site}.record", start)
    learn_site(LearnRequest(*place, epsilon=EPSILON, round=ROUND, sign=key))


def _halves(folder: Path, start: Path) -> list[Path]:
    """What the two keepers publish of the round."""
    found = []
    for keeper in KEEPERS:
        shares = sorted(folder.glob(f"*/*.{keeper}.share"))
        out = folder / f"{keeper}.record"
        keep_files(KeepRequest(shares, start, folder / keeper, out))
        found.append(out)
    return found
