"""What is known of an opened capsule, as plain data for programs and pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fcforge.capsule.contents import Capsule
from fcforge.capsule.ledger import Entry, learned
from fcforge.methods import METHODS


def summary(capsule: Capsule) -> dict[str, Any]:
    """Who contributed, what travels and what was spent, for programs."""
    spent = budget(capsule)
    names = ("epsilon", "delta", "noise_is_secret")
    return {
        "id": capsule.id,
        "parent": capsule.parent,
        "signed_by": capsule.signed_by,
        "sites": list(capsule.sites),
        "keeps": capsule.keeps,
        "remembered": len(capsule.remembered),
        "remembered_real": int(capsule.remembered.real.sum()),
        "held_out": len(capsule.held_out),
        "temperature": capsule.temperature,
        "own_tests": [asdict(t) for t in own_tests(capsule.entries)],
        "audited": audited_sites(capsule),
        "privacy_budget": dict(zip(names, spent, strict=True)) if spent is not None else None,
        "settings": capsule.settings.to_json(),
        "ledger": list(capsule.entries),
    }


def budget(capsule: Capsule) -> tuple[float, float | None, bool] | None:
    """Epsilon, delta and whether the noise is secret, of a method with differential privacy."""
    state, method = capsule.lane.state, capsule.settings.learner.method
    kind = METHODS[method.name]
    # a made-up capsule may hold anything under these names
    found = [state[key] for key in ("epsilon", "secret") if key in state]
    if not hasattr(kind, "epsilon") or [value.numel() for value in found] != [1, 1]:
        return None
    delta = method.params.get("delta", getattr(kind, "delta", None))
    known = delta if isinstance(delta, (int, float)) else None
    return float(found[0]), known, bool(found[1])


def audited_sites(capsule: Capsule) -> list[str]:
    """Sites with an audit of what travels now, not of a state before the last site."""
    last = max(entry["number"] for entry in learned(capsule.entries))
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
        return self.low is not None and self.majority is not None and self.low > self.majority


def own_tests(entries: Sequence[Entry]) -> list[OwnTest]:
    """Accuracy on real test subjects, site by site, from the ledger."""
    found = []
    for entry in learned(entries):
        own, counts = entry["metrics"]["own_test"], entry["counts"]["test"]
        if own is None or own["accuracy"] is None:
            continue
        classes = (counts["patients"], counts["controls"])
        if None in classes or not sum(classes):
            found.append(OwnTest(entry["site"], own["accuracy"]))
            continue
        n = sum(classes)
        low, high = wilson(own["accuracy"], n)
        found.append(OwnTest(entry["site"], own["accuracy"], low, high, max(classes) / n, n))
    return found


def wilson(share: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a share of n people (Wilson 1927).

    Examples
    --------
    >>> [round(x, 3) for x in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return middle - half, middle + half
