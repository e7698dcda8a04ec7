"""A capsule in plain words, for the ethics board and for the next hospital."""

from __future__ import annotations

from fcforge.capsule.contents import Capsule
from fcforge.capsule.ledger import SMALL_CELL, Entry, learned
from fcforge.capsule.summary import audited_sites
from fcforge.methods import METHODS
from fcforge.report.audits import sentences
from fcforge.report.table import Table
from fcforge.report.trust import answers, audits_of
from fcforge.text import counted, printable


def inspect_words(capsule: Capsule) -> list[str]:
    """Lines that say who contributed, when, what is kept, and how well it works."""
    lines = [*_identity(capsule), ""]
    for answer in answers(capsule):
        lines += [answer.question, f"  {answer.say}", *(f"  {more}" for more in answer.more)]
        lines += [f"    {bar.text()}{f', {bar.small}' if bar.small else ''}" for bar in answer.bars]
        lines.append("")
    lines.append("Sites, in the order of learning:")
    for entry in learned(capsule.entries):
        lines += _contribution(entry)
    lines += ["", *_accuracy(capsule), "", *_prediction(capsule), "", *_audits(capsule)]
    return [printable(line) for line in lines]


def _identity(capsule: Capsule) -> list[str]:
    settings = capsule.settings
    method = METHODS[settings.learner.method.name]
    generator = settings.learner.generator
    with_generator = f", generator {generator.name}" if generator else ""
    return [
        f"Capsule {capsule.id[:16]}",
        f"  made from: {capsule.parent[:16] or 'nothing (first of its chain)'}",
        f"  learner: {method.title} on {settings.learner.model.name}{with_generator}, "
        f"seed {settings.seed}, {settings.n_rois} ROIs",
    ]


def people(counts: dict[str, int | None]) -> str:
    """Patients and controls, small counts as they were written: not at all."""
    shown = [f"fewer than {SMALL_CELL}" if v is None else str(v) for v in counts.values()]
    return ", ".join(f"{n} {who}" for n, who in zip(shown, counts, strict=True))


def _contribution(entry: Entry) -> list[str]:
    counts = entry["counts"]
    flags = [f"    flags: {', '.join(entry['flags'])}"] if entry["flags"] else []
    return [
        f"  {entry['site']} ({entry['time']}): learned {people(counts['learning'])}; "
        f"kept for testing {people(counts['test'])}",
        *flags,
    ]


def held_out_table(capsule: Capsule) -> Table | None:
    """Accuracy of every site's synthetic held-out set after every site, from the ledger."""
    stages = learned(capsule.entries)
    if not stages[-1]["metrics"]["held_out"]:
        return None
    found = [entry["metrics"]["held_out"] for entry in stages]
    rows = [
        (site, *(_percent(stage[site]["accuracy"]) if site in stage else "-" for stage in found))
        for site in capsule.sites
    ]
    return Table.of(["tested on", *(f"after {entry['site']}" for entry in stages)], rows)


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _accuracy(capsule: Capsule) -> list[str]:
    table = held_out_table(capsule)
    if table is None:
        return ["Accuracy on synthetic held-out sets: none were made."]
    return [
        "Accuracy on each site's synthetic held-out set, measured without any real scan",
        "(higher than on real subjects; read the change from left to right):",
        *table.text().splitlines(),
    ]


def _prediction(capsule: Capsule) -> list[str]:
    how = learned(capsule.entries)[-1]["calibration"]["how"]
    place = {"inner_val": "validation subjects", "synthetic": "synthetic held-out subjects"}
    source = "not calibrated"
    if how in place:
        source = f"calibrated on {place[how]} (temperature {capsule.temperature:.2f})"
    knows = any(e["reference"]["inside"] is not None for e in learned(capsule.entries))
    strange = "abstains on scans unlike those of every site" if knows else "cannot abstain"
    return [f"Prediction: probabilities {source}; {strange}."]


def _audits(capsule: Capsule) -> list[str]:
    """Every audit with the site and the state of the capsule it is about, and who had none."""
    lines = []
    for number, time, site, audit in audits_of(capsule):
        later = [e["site"] for e in learned(capsule.entries[number:])]
        about = f"site {site}" if site else "no site named"
        about += f"; {', '.join(later)} came after it" if later else ""
        said = sentences(audit) if audit else [str(capsule.entries[number]["result"])]
        lines += [f"  {time}, {about}:", *(f"    {text}" for text in said)]
    if not lines:
        return ["Privacy audit: none recorded."]
    missing = [site for site in capsule.sites if site not in audited_sites(capsule)]
    if missing:
        lines.append(f"  Not audited as it travels now: {', '.join(missing)}.")
    n = counted(sum(e["kind"] == "audit" for e in capsule.entries), "audit")
    return [f"Privacy, {n} recorded: how well an attacker does against this capsule", *lines]
