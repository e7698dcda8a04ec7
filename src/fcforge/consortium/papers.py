"""The papers of a start, field by field: a file can hold these facts and nothing else."""

from dataclasses import dataclass
from typing import Annotated, Any

from fcforge.capsule.lines import Number, Text, check_table
from fcforge.errors import CapsuleError
from fcforge.releases.start import StartSettings
from fcforge.settings import Bound, Count, Share

Rois = Annotated[int, Bound(lambda v: 2 <= v <= 2_000, "is not a number of ROIs", "")]
Above = Annotated[float, Bound(lambda v: 0 < v <= 1e9, "would let every scan pass", "")]
BelowOne = Annotated[float, Bound(lambda v: -1e9 < v < 1, "would let every scan pass", "")]


@dataclass(frozen=True)
class ScanLimits:
    """How far out, and how unlike the public mean, a scan or a site may be."""

    size: Above
    likeness: BelowOne
    site: BelowOne


@dataclass(frozen=True)
class UnseenSite:
    """How good the public head is at a public site it has not seen."""

    people: Count
    accuracy: Share | None
    auroc: Share | None
    majority: Share | None


@dataclass(frozen=True)
class Papers:
    """Who the public people are, and what is expected of every scan."""

    fcforge: Text
    dataset: Text
    people_sha256: Text
    left_out: list[Text]
    people: Count
    ids: list[Text]
    patients: Count
    sites: dict[Text, Count]
    n_rois: Rois
    roi_names: list[Text]
    classes: tuple[Text, Text]
    removes: list[Text]
    ranges: dict[Text, tuple[Number, Number]]
    settings: StartSettings
    limits: ScanLimits
    unseen_site: UnseenSite


def checked_papers(papers: Any) -> dict[str, Any]:
    """Papers of a start with exactly the fields they should have; else `CapsuleError`."""
    where = "the start's papers"
    check_table(Papers, papers, where)
    if len(papers["roi_names"]) not in (0, papers["n_rois"]):
        raise CapsuleError(f"{where}: 'n_rois' and 'roi_names' do not fit.")
    ranges = papers["ranges"]
    if sorted(ranges) != sorted(papers["removes"]) or any(a > b for a, b in ranges.values()):
        raise CapsuleError(f"{where}: 'ranges' do not fit what is removed.")
    if not sum(papers["sites"].values()) == len(papers["ids"]) == papers["people"]:
        raise CapsuleError(f"{where}: its sites do not add up to its people.")
    return papers
