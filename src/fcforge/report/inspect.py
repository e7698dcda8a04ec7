"""A capsule in plain words, for the ethics board and for the next hospital."""

from __future__ import annotations

from fcforge.capsule.contents import Capsule
from fcforge.capsule.ledger import SMALL_CELL, Entry, learned
from fcforge.capsule.summary import audited_sites, budget
from fcforge.methods import METHODS
from fcforge.text import memory, printable

KEPT = {
    "nothing": "the network only; no subject, real or synthetic, is used for learning later",
    "statistics": "summary statistics of each site's subjects, not the subjects themselves",
    "synthetic subjects": "synthetic subjects made by a generator",
    "real subjects": "REAL SUBJECTS of earlier sites",
}
EXACT = ("analytic",)  # second moments without noise: leverage finds every member (docs/privacy.md)


def inspect_words(capsule: Capsule) -> list[str]:
    """Lines that say who contributed, when, what is kept, and how well it works."""
    lines = [*_identity(capsule), "", *_kept(capsule), "", "Sites, in the order of learning:"]
    for entry in learned(capsule.entries):
        lines += _contribution(entry)
    lines += ["", *_accuracy(capsule), "", *_prediction(capsule), "", *_audits(capsule)]
    return [printable(line) for line in lines]


def _identity(capsule: Capsule) -> list[str]:
    settings = capsule.settings
    method = METHODS[settings.learner.method.name]
    generator = settings.learner.generator
    with_generator = f", generator {generator.name}" if generator else ""
    key = capsule.signed_by[:16]
    signed = f"by key {key}; `verify --trust` says whether it is the sender's" if key else "none"
    return [
        f"Capsule {capsule.id[:16]}",
        f"  made from: {capsule.parent[:16] or 'nothing (first of its chain)'}",
        f"  signature: {signed}",
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
        f"  {n_params} network parameters, {memory(state)} of method state",
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
    spent = budget(capsule)
    if spent is not None:
        lines.append(f"  {budget_words(*spent)}")
    if capsule.settings.learner.method.name in EXACT:
        lines.append(
            "  Exact statistics can give away who was added to them: treat as patient data."
        )
    return lines


def budget_words(epsilon: float, delta: float | None, noise_is_secret: bool) -> str:
    """What differential privacy covers in a capsule, and what it does not."""
    if not noise_is_secret:
        return (
            f"Epsilon {epsilon:g} was asked for, but the noise was drawn from a known seed: there "
            "is no guarantee."
        )
    with_delta = "" if delta is None else f" (delta {delta:g})"
    return (
        f"Differential privacy: method state and network carry epsilon {epsilon:g}{with_delta} per "
        "person, smaller is safer, whatever the attack; synthetic held-out subjects, counts, "
        "accuracies and temperature in the same file are outside that budget."
    )


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
    source = "not calibrated"
    if how in place:
        source = f"calibrated on {place[how]} (temperature {capsule.temperature:.2f})"
    knows = any(e["reference"]["inside"] is not None for e in learned(capsule.entries))
    silent = "abstains on scans unlike those of every site" if knows else "cannot abstain"
    return [f"Prediction: probabilities {source}; {silent}."]


def _audits(capsule: Capsule) -> list[str]:
    """Every audit with the site and the state of the capsule it is about, and who had none."""
    lines = []
    for number, entry in enumerate(capsule.entries):
        if entry["kind"] != "audit":
            continue
        site, later = entry["result"].get("site"), learned(capsule.entries[number:])
        about = f"site {site}" if isinstance(site, str) else "no site named"
        if later:
            about += f"; {', '.join(e['site'] for e in later)} came after it"
        lines += [f"  {entry['time']}, {about}:", *(f"    {t}" for t in _audit_text(entry))]
    audited = audited_sites(capsule)
    missing = [site for site in capsule.sites if site not in audited]
    if missing and lines:
        lines.append(f"  Not audited as it travels now: {', '.join(missing)}.")
    if lines:
        return ["Privacy audit: how well an attacker does against this capsule", *lines]
    return [
        "Privacy audit: none recorded. How well an attacker can tell who took part has not been",
        "measured; each hospital can, on its own data: `fcforge audit --capsule ... --record ...`.",
    ]


def _audit_text(entry: Entry) -> list[str]:
    said = entry["result"].get("words")
    if isinstance(said, list):  # what `fcforge audit` writes; its numbers are in --json
        return list(map(str, said))
    return [", ".join(f"{k} {v}" for k, v in sorted(entry["result"].items()))]
