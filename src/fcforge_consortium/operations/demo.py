"""A round of two aggregators among simulated hospitals, played by the commands' own functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fcforge.core.errors import FCForgeError
from fcforge.core.estimate import Estimate
from fcforge.core.files import whole_folder
from fcforge.core.spec import Conditions
from fcforge.data.cohort import Cohort, write_people
from fcforge.data.simulated import simulate
from fcforge.data.splits import split_cohort
from fcforge_consortium.aggregation.aggregators import CARD, write_aggregator
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.contributions import prediction
from fcforge_consortium.operations.aggregate import aggregate_files, close_files
from fcforge_consortium.operations.base_model import write_base_model
from fcforge_consortium.operations.contribute import contribute
from fcforge_consortium.operations.records import merge_files
from fcforge_consortium.options import (
    AggregateRequest,
    BaseModelRequest,
    CloseRequest,
    ContributeRequest,
    MergeRequest,
)
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import write_keys

HOSPITALS = 6
PUBLIC_SITES = 4
EPSILON = 8.0
ROUND = "demo"
AGGREGATORS = ("Demo-University", "Demo-Ministry")
MERGED = "all.fcx"
PAGE = "page.html"


@dataclass(frozen=True)
class DemoRound:
    """The result of a simulated round.

    Attributes
    ----------
    exchange : Exchange
        After the round.
    people, tested : int
        People behind the contributions, and people on whom the models are evaluated.
    auroc : mapping of title to Estimate
        AUROC of the base model alone, after the round, and of everybody's scans in one place.
    """

    exchange: Exchange
    people: int
    tested: int
    auroc: Mapping[str, Estimate]


def play_round(place: Path, n_rois: int = 40) -> DemoRound:
    """Play a round of six simulated hospitals and two aggregators, all in files.

    Parameters
    ----------
    place : Path
        Folder to write; it must not exist.
    n_rois : int
        ROIs of the simulated scans.

    Returns
    -------
    DemoRound
    """
    if place.exists():
        hint = "Remove it to play another round, or choose another folder."
        raise FCForgeError("the folder exists.", where=place, do=hint)
    everybody = simulate("hard", n_rois=n_rois, n_sites=HOSPITALS + PUBLIC_SITES)
    names = everybody.site_names[:HOSPITALS]
    others = everybody.select_sites(everybody.site_names[HOSPITALS:])
    public = others.select(np.arange(0, len(others), 2))  # few: much is left to learn
    conditions = Conditions(val_fraction=0)
    parts = [split_cohort(everybody, name, 0, conditions) for name in names]
    learning = _union(everybody, [part["train"] for part in parts])
    tested = _union(everybody, [part["test"] for part in parts])
    with whole_folder(place) as folder:
        base_model = _write_base_model(folder, public, len(learning))
        for name in names:
            people = learning.select_sites([name])
            _contribute(folder / name, base_model, people)
        shares = _aggregate(folder, base_model)
        merged = merge_files(MergeRequest([base_model, *shares], folder / MERGED))
    auroc = _evaluate(merged, _union(everybody, [public, learning]), tested)
    return DemoRound(merged, len(learning), len(tested), auroc)


def _evaluate(
    merged: Exchange, everybody: Cohort, tested: Cohort
) -> dict[str, Estimate]:
    """Return the AUROC of the models before and after the round, and of one on everybody.

    Parameters
    ----------
    merged : Exchange
        After the round.
    everybody : Cohort
        Public people and those behind the contributions.
    tested : Cohort
        People of the hospitals who were not contributed.
    """
    rows = prediction.evaluate(merged, tested).rows
    pooled = prediction.evaluate(make_base_model(everybody), tested).rows
    return {
        "base model alone": rows["base model alone"]["auroc"],
        f"after the round, epsilon {EPSILON:g}": rows["exchange"]["auroc"],
        "everybody's scans in one place": pooled["exchange"]["auroc"],
    }


def _union(everybody: Cohort, parts: list[Cohort]) -> Cohort:
    """Return the people of `everybody` who are in one of the parts."""
    ids = np.concatenate([part.subject_id for part in parts])
    return everybody.select(np.isin(everybody.subject_id, ids))


def _write_base_model(folder: Path, public: Cohort, people: int) -> Path:
    """Write a signed base model that names two aggregators; return its path.

    Parameters
    ----------
    folder : Path
    public : Cohort
        Public people.
    people : int
        Planned number of people in all contributions.
    """
    key = folder / "maker.key"
    write_keys(key)
    cards = []
    for name in AGGREGATORS:
        place = folder / name
        write_aggregator(place, name)
        cards.append(Path(f"{place}{CARD}"))
    out = folder / "base.fcx"
    write_base_model(
        BaseModelRequest(
            out=out,
            data=write_people(folder / "public.npz", public),
            sign=key,
            aggregator=cards,
            people=people,
            hospitals=HOSPITALS,
            epsilon=EPSILON,
        )
    )
    return out


def _contribute(home: Path, base_model: Path, people: Cohort) -> None:
    """Write a hospital's shares for the round into its folder.

    Parameters
    ----------
    home : Path
        Folder of the hospital, to be made.
    base_model : Path
        File of the base model.
    people : Cohort
        The hospital's people.
    """
    home.mkdir()
    data = write_people(home / "people.npz", people)
    key = home / "key"
    write_keys(key)
    site = people.site_names[0]
    contribute(
        ContributeRequest(
            site,
            data,
            home / f"{site}.record",
            state=base_model,
            epsilon=EPSILON,
            round=ROUND,
            sign=key,
            new_ledger=True,
        )
    )


def _aggregate(folder: Path, base_model: Path) -> list[Path]:
    """Close the round, then write the aggregate shares of the two aggregators; return their paths."""
    state = base_model
    for aggregator in sorted(AGGREGATORS):
        out = folder / f"closed by {aggregator}.fcx"
        close_files(
            CloseRequest(_shares(folder, aggregator), state, folder / aggregator, out)
        )
        state = out
    written = []
    for aggregator in AGGREGATORS:
        out = folder / f"{aggregator}.record"
        shares = _shares(folder, aggregator)
        aggregate_files(AggregateRequest(shares, state, folder / aggregator, out))
        written.append(out)
    return written


def _shares(folder: Path, aggregator: str) -> list[Path]:
    """Return the share files of all hospitals for an aggregator."""
    return sorted(folder.glob(f"*/*.{aggregator}.share"))
