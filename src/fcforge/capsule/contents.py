"""What a capsule holds, and what is known of it as plain data for programs and pages."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.capsule import chain, home, ledger
from fcforge.capsule.arrays import Subjects, named_harmony
from fcforge.errors import CapsuleError
from fcforge.methods import Lane, make_method
from fcforge.sites.cohort import NUMBERED, Cohort
from fcforge.sites.harmonise import Harmony, Unseen

Sites = (
    str | Sequence[str] | None
)  # of some people: one of all, one of each, or not known
ANYWHERE = (NUMBERED, ("control", "patient"))  # mean the same in all data


def wrong_rois(names: Sequence[str], ours: Sequence[str]) -> str:
    """What is wrong with the ROI names of some data; empty where either side has none."""
    if not names or not ours:
        return ""
    if len(names) != len(ours):
        return f"it has {len(names)} ROI names, the capsule {len(ours)}."
    odd = [
        k for k, (mine, our) in enumerate(zip(names, ours, strict=True)) if mine != our
    ]
    if not odd:
        return ""
    return f"ROI {odd[0] + 1} is '{names[odd[0]]}', the capsule has '{ours[odd[0]]}' there."


def require_fit(cohort: Cohort, roi_names: Sequence[str], ours: Sequence[Any]) -> None:
    """Raise `CapsuleError` for other ROIs, or other patients, than those of the capsule.

    0 and 1 are controls and patients everywhere, and so are the words.

    Parameters
    ----------
    cohort : Cohort
    roi_names : sequence of str
        The capsule's.
    ours : sequence of two
        What the capsule calls controls and patients.
    """
    if wrong := wrong_rois(cohort.roi_names, roi_names):
        raise CapsuleError(
            wrong, do="All hospitals use one atlas with its ROIs in one order."
        )
    mine = cohort.classes
    both = [tuple(str(c).lower() for c in said) for said in (ours, mine)]
    if both[0] == both[1] or any(said in ANYWHERE for said in both):
        return
    turned = " The other way round." if both[0] == both[1][::-1] else ""
    raise CapsuleError(
        f"the capsule's patients are '{ours[1]}' and its controls '{ours[0]}', those of these data "
        f"'{mine[1]}' and '{mine[0]}'.{turned}",
        do=f"Say which diagnosis is the capsule's '{ours[1]}': --positive VALUE, and name it so in "
        "the data.",
    )


@dataclass(frozen=True)
class Capsule:
    """An opened (or not yet sealed) capsule.

    Attributes
    ----------
    settings : ChainSettings
    sites : tuple of str
        Sites learned, in order.
    lane : Lane
        Parameters, batch-norm statistics, method state. The state's `row_keys` hold places in
        `remembered` (-1: empty slot) instead of bank rows.
    remembered, held_out : Subjects
    entries : tuple of dict
        The ledger.
    id : str
        SHA-256 of the manifest, which covers everything; empty until sealed.
    parent : str
        Id of the capsule it was made from.
    harmony : Harmony or None
        Of a harmonised chain: the reference, and how each site is moved to it.
    receipts : tuple of Receipt
        Who was learned: known to the hospital that just did, and never sealed.
    """

    settings: chain.ChainSettings
    sites: tuple[str, ...]
    lane: Lane
    remembered: Subjects
    held_out: Subjects
    entries: tuple[ledger.Entry, ...]
    id: str = ""
    parent: str = ""
    harmony: Harmony | None = None
    receipts: tuple[home.Receipt, ...] = ()

    @classmethod
    def empty(cls, settings: chain.ChainSettings) -> Self:
        """What the first hospital of a chain is handed: settings, and nothing learned."""
        nobody = Subjects.none(settings.n_rois)
        return cls(settings, (), Lane({}, {}, {}), nobody, nobody, ())

    def moved(
        self, fc: np.ndarray, site: Sites, unseen: Unseen = "refuse"
    ) -> np.ndarray:
        """FC (n, R, R) of people of a site (or of one site each) as the model wants them.

        Without harmonisation they stay as they are; with it the sites must be told.
        """
        if self.harmony is None:
            return fc
        if site is None or len(site) == 0:
            raise CapsuleError(
                f"the model is harmonised ({self.harmony.how}), so that a scan's site matters.",
                do=f"Say which: --site (or site=), one of {', '.join(self.sites)}.",
            )
        names = [site] * len(fc) if isinstance(site, str) else list(site)
        return self.harmony.apply(fc, names, self.sites, unseen)

    def line(self, site: str) -> ledger.Entry:
        """The ledger line in which a site was learned; else `CapsuleError`."""
        for entry in ledger.learned(self.entries):
            if entry["site"] == site:
                return entry
        raise CapsuleError(
            f"site '{site}' was not learned; it holds {', '.join(self.sites)}."
        )

    @property
    def signed_by(self) -> str:
        """Hex of the Ed25519 public key that signed its last line; empty without signature."""
        return self.entries[-1]["key"] if self.entries else ""

    @property
    def temperature(self) -> float:
        """Geometric mean of the temperatures measured at the hospitals; 1 without any."""
        found = [e["calibration"]["temperature"] for e in ledger.learned(self.entries)]
        logs = [math.log(t) for t in found if t is not None]
        return math.exp(sum(logs) / len(logs)) if logs else 1.0

    @property
    def holds_real(self) -> bool:
        """Whether sealing it needs the named flag."""
        return self.settings.copies_real or bool(self.remembered.real.any())


def summary(capsule: Capsule) -> dict[str, Any]:
    """Who contributed, what travels and what was spent, for programs."""
    spent, names = budget(capsule), ("epsilon", "delta", "noise_is_secret")
    return {
        "id": capsule.id,
        "parent": capsule.parent,
        "signed_by": capsule.signed_by,
        "sites": list(capsule.sites),
        "keeps": capsule.settings.keeps,
        "remembered": len(capsule.remembered),
        "remembered_real": int(capsule.remembered.real.sum()),
        "held_out": len(capsule.held_out),
        "arrays": arrays(capsule),
        "temperature": capsule.temperature,
        "audited": audited_sites(capsule),
        "own_tests": [asdict(t) for t in own_tests(capsule.entries)],
        "privacy_budget": dict(zip(names, spent, strict=True))
        if spent is not None
        else None,
        "settings": capsule.settings.to_json(),
        "ledger": list(capsule.entries),
    }


SCAN_LIKE = (
    0.4  # real subjects of ABIDE correlate 0.54 to 0.70 with their site's mean pattern
)


def arrays(capsule: Capsule) -> list[dict[str, Any]]:
    """Everything the capsule holds beside texts: name, shape, bytes, and rows that look like scans.

    A row as long as an FC has edges is held against the mean pattern of every site's synthetic
    held-out subjects. Rows of learned weights do not correlate with it; scans do.
    """
    named = {**capsule.lane.named(), **named_harmony(capsule.harmony)}
    held = capsule.held_out
    means = [held.upper[held.site == k].mean(0) for k in held.site.unique().tolist()]
    patterns = torch.stack(means) if means else held.upper[:0]
    patterns = patterns - patterns.mean(1, keepdim=True)
    for part in ("remembered", "held_out"):
        named[f"{part}/upper"] = getattr(capsule, part).upper
    return [
        {
            "name": name,
            "shape": list(v.shape),
            "bytes": v.nbytes,
            "scan_like": _rows(v, patterns),
        }
        for name, v in sorted(named.items())
    ]


def _rows(value: Tensor, patterns: Tensor) -> int:
    """Rows that correlate with a site's mean pattern."""
    n_edges = patterns.shape[1]
    if not len(patterns) or n_edges not in value.shape:
        return 0
    rows = value.movedim(value.shape.index(n_edges), -1).reshape(-1, n_edges).float()
    rows = rows - rows.mean(1, keepdim=True)
    r = F.normalize(rows, dim=1) @ F.normalize(patterns, dim=1).T
    return int((r.amax(1) > SCAN_LIKE).sum())


def budget(capsule: Capsule) -> tuple[float, float, bool] | None:
    """Epsilon, delta and whether the noise is secret, of a method with differential privacy.

    The settings say it, which govern the next hospital as well; opening holds the state to them.
    """
    method = make_method(capsule.settings.learner.method)
    if not hasattr(method, "epsilon"):
        return None
    return float(method.epsilon), float(method.delta), method.noise == "secret"  # type: ignore[attr-defined]


def audited_sites(capsule: Capsule) -> list[str]:
    """Sites with an audit of what travels now, not of a state before the last site."""
    last = max(entry["number"] for entry in ledger.learned(capsule.entries))
    named = [e["result"].get("site") for e in capsule.entries[last + 1 :]]
    return [site for site in capsule.sites if site in named]


@dataclass(frozen=True)
class OwnTest:
    """What a hospital measured on its own real test subjects when it had just learned.

    Attributes
    ----------
    site : str
    accuracy : float
    low, high : float or None
        95 % Wilson interval; None where a count below `SMALL_CELL` was not written.
    majority : float or None
        What always naming the site's commonest class would have scored.
    n : int or None
        Test subjects.
    """

    site: str
    accuracy: float
    low: float | None = None
    high: float | None = None
    majority: float | None = None
    n: int | None = None

    @property
    def useful(self) -> bool:
        """Whether it surely beats always naming the commonest class."""
        return (
            self.low is not None
            and self.majority is not None
            and self.low > self.majority
        )


def own_tests(entries: Sequence[ledger.Entry]) -> list[OwnTest]:
    """Accuracy on real test subjects, site by site, from the ledger."""
    found = []
    for entry in ledger.learned(entries):
        own, counts = entry["metrics"]["own_test"], entry["counts"]["test"]
        if own is None or own["accuracy"] is None:
            continue
        classes = (counts["patients"], counts["controls"])
        known: tuple[Any, ...] = ()
        if None not in classes and (n := sum(classes)):
            known = (*wilson(own["accuracy"], n), max(classes) / n, n)
        found.append(OwnTest(entry["site"], own["accuracy"], *known))
    return found


def wilson(share: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a share of n people (Wilson 1927).

    Examples
    --------
    >>> [round(x, 3) for x in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = (
        z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    )
    return middle - half, middle + half
