"""What is known of an opened capsule, as plain data for programs and pages."""

from __future__ import annotations

from typing import Any

from fcforge.capsule.contents import Capsule
from fcforge.capsule.ledger import learned
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
