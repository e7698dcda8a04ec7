"""A capsule in plain words, for the ethics board and for the next hospital."""

from __future__ import annotations

import re
from typing import Any

from fcforge.capsule.contents import Capsule
from fcforge.capsule.ledger import SMALL_CELL, Entry, learned
from fcforge.strategies import STRATEGIES

KEPT = {
    "nothing": "the network only; no subject, real or synthetic, is used for learning later",
    "statistics": "summary statistics of each site's subjects, not the subjects themselves",
    "synthetic subjects": "synthetic subjects made by a generator",
    "real subjects": "REAL SUBJECTS of earlier sites",
}


def inspect_words(capsule: Capsule) -> list[str]:
    """Lines that say who contributed, when, what is kept, and how well it works."""
    lines = [*_identity(capsule), "", *_kept(capsule), "", "Sites, in the order of learning:"]
    for entry in learned(capsule.entries):
        lines += _contribution(entry)
    lines += ["", *_accuracy(capsule), "", *_prediction(capsule), "", *_audits(capsule)]
    return [printable(line) for line in lines]


def printable(text: str) -> str:
    """Text without control characters: a site name must not drive the reader's terminal."""
    # surrogates (\ud800-\udfff) cannot be printed at all
    return re.sub(r"[^\x20-\x7e\u00a0-\u2027\u202f-\ud7ff\ue000-\ufefe]", "?", text)


def summary(capsule: Capsule) -> dict[str, Any]:
    """The same for programs."""
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
        "settings": capsule.settings.to_json(),
        "ledger": list(capsule.entries),
    }


def _identity(capsule: Capsule) -> list[str]:
    settings = capsule.settings
    method = STRATEGIES[settings.learner.method.name]
    generator = settings.learner.generator
    with_generator = f", generator {generator.name}" if generator else ""
    return [
        f"Capsule {capsule.id[:16]}",
        f"  made from: {capsule.parent[:16] or 'nothing (first of its chain)'}",
        f"  signature: {'Ed25519 key ' + capsule.signed_by[:16] if capsule.signed_by else 'none'}",
        f"  learner: {method.title} on {settings.learner.model.name}{with_generator}, "
        f"seed {settings.seed}, {settings.n_rois} ROIs",
    ]


def _kept(capsule: Capsule) -> list[str]:
    n_params = sum(p.numel() for p in capsule.lane.params.values())
    state = sum(v.numel() * v.element_size() for v in capsule.lane.state.values())
    real = int(capsule.remembered.real.sum())
    lines = [
        "What travels:",
        f"  method keeps {KEPT[capsule.keeps]}",
        f"  {n_params} network parameters, {state} bytes of method state",
        f"  {len(capsule.remembered) - real} synthetic and {real} real remembered subjects",
        f"  {len(capsule.held_out)} synthetic held-out subjects, never trained on",
    ]
    if capsule.holds_real:
        lines.append("  WARNING: sealed with --allow-real-subjects: it carries real subjects.")
    lines.append(
        "  No raw scan is stored." if not capsule.holds_real else "  This capsule is patient data."
    )
    if not capsule.holds_real:
        lines[-1] += " That is not the same as private: see the audit."
    return lines


def _count(value: int | None) -> str:
    return f"fewer than {SMALL_CELL}" if value is None else str(value)


def _contribution(entry: Entry) -> list[str]:
    learning, test = entry["counts"]["learning"], entry["counts"]["test"]
    own = entry["metrics"]["own_test"]
    lines = [
        f"  {entry['site']} ({entry['time']}): {_count(learning['patients'])} patients, "
        f"{_count(learning['controls'])} controls learned; {_count(test['patients'])} and "
        f"{_count(test['controls'])} kept for testing",
    ]
    if own is not None:
        lines.append(
            f"    accuracy on its own real test subjects then: {_percent(own['accuracy'])}"
        )
    if entry["flags"]:
        lines.append(f"    flags: {', '.join(entry['flags'])}")
    return lines


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _accuracy(capsule: Capsule) -> list[str]:
    """Accuracy of every site after every site, from the ledger."""
    stages = learned(capsule.entries)
    if not stages[-1]["metrics"]["held_out"]:
        return ["Accuracy on synthetic held-out sets: none were made."]
    width = max(len(site) for site in capsule.sites)
    lines = [
        "Accuracy on each site's synthetic held-out set, measured without any real scan",
        "(higher than on real subjects; read the change from left to right):",
        "  " + " " * width + "".join(f"  after {e['site']}" for e in stages),
    ]
    for site in capsule.sites:
        cells = []
        for entry in stages:
            found = entry["metrics"]["held_out"].get(site)
            text = _percent(found["accuracy"]) if found else "-"
            cells.append(f"  {text:>{len(entry['site']) + 6}}")
        lines.append(f"  {site:<{width}}" + "".join(cells))
    return lines


def _prediction(capsule: Capsule) -> list[str]:
    how = learned(capsule.entries)[-1]["calibration"]["how"]
    place = {"inner_val": "validation subjects", "synthetic": "synthetic held-out subjects"}
    source = f"fitted on {place[how]}" if how in place else "not calibrated"
    knows = any(e["reference"]["inside"] is not None for e in learned(capsule.entries))
    silent = "abstains on scans unlike those of every site" if knows else "cannot abstain"
    return [f"Prediction: temperature {capsule.temperature:.2f} ({source}); {silent}."]


def _audits(capsule: Capsule) -> list[str]:
    audits = [e for e in capsule.entries if e["kind"] == "audit"]
    if not audits:
        return ["Privacy audit: none recorded."]
    lines = ["Privacy audit:"]
    for entry in audits:
        said = entry["result"].get("words")
        if isinstance(said, list):  # what `fcforge audit` writes; its numbers are in --json
            lines += [f"  {entry['time']}:", *(f"    {text}" for text in said)]
            continue
        numbers = ", ".join(f"{k} {v}" for k, v in sorted(entry["result"].items()))
        lines.append(f"  {entry['time']}: {numbers}")
    return lines
