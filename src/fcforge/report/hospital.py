"""What a hospital reads at its own turn: what was found at its site, how good a capsule is."""

from __future__ import annotations

from collections.abc import Sequence

from fcforge.capsule.contents import Capsule
from fcforge.capsule.keyring import read_keyring
from fcforge.capsule.requests import LearnRequest
from fcforge.capsule.summary import budget
from fcforge.consortium.evaluating import Evaluation
from fcforge.consortium.learning import Budget, Learned
from fcforge.consortium.members import Consortium
from fcforge.metrics import METRICS
from fcforge.report.table import Table
from fcforge.text import bracket, number, printable


def people(n: int) -> str:
    """1 person, 2 people."""
    return "1 person" if n == 1 else f"{n} people"


def found_words(done: Learned) -> list[str]:
    """What was found at the site and what its release spends, before anything is written."""
    release, found = done.release, done.before
    lines = [
        f"site '{release.site}': {people(int(found['people']))}. The model that came in reaches "
        f"accuracy {number(found['accuracy'])} here (majority class {number(found['majority'])}), "
        f"AUROC {number(found['auroc'])}.",
    ]
    if release.mechanism == "none":
        lines.append(
            f"wave {release.wave}: {len(release.numbers)} exact sums leave, without noise: no "
            "promise of privacy is made."
        )
    else:
        again = f"; with earlier releases {release.spent:g}"
        lines.append(
            f"wave {release.wave}: {len(release.numbers)} numbers leave. Each person spends "
            f"epsilon {release.epsilon:g} (delta {release.delta:g})"
            f"{again if release.spent > release.epsilon else ''}."
        )
    return [printable(line) for line in lines]


def continued_chain(capsule: Capsule) -> list[str]:
    """What a hospital is about to continue: a chained capsule."""
    settings, learner = capsule.settings, capsule.settings.learner
    keyring = read_keyring()
    signers = [(e.get("site", e["kind"]), e["key"]) for e in capsule.entries]
    method = [learner.title, f"{settings.n_rois} ROIs", f"seed {settings.seed}"]
    training = settings.training
    spent = budget(capsule)
    return _continued(
        f"chained capsule {capsule.id[:16]}",
        capsule.sites,
        [f"{who}: {keyring.said(key) if key else 'nobody'}" for who, key in signers],
        [*method, f"{training.epochs} epochs", f"patients are '{settings.classes[1]}'"],
        "nothing is promised" if spent is None else f"epsilon {spent[0]:g} (delta {spent[1]:g})",
    )


def continued_group(group: Consortium, asked: LearnRequest) -> list[str]:
    """What a hospital is about to add its release to."""
    papers, keyring = group.start.papers, read_keyring()
    made = f"{papers['people']} public people of {', '.join(papers['sites'])}"
    removed = f"removes {', '.join(papers['removes']) or 'nothing'}"
    given = Budget(
        **{k: v for k, v in asked.release.items() if k in ("mechanism", "epsilon", "delta")}
    )
    exact = given.limit is None
    return _continued(
        f"capsule of releases {group.digest[:16]} around start {group.start.digest[:16]}",
        group.sites,
        [f"{r.site}: {keyring.said(r.key) if r.key else 'nobody'}" for r in group.releases],
        [made, f"{papers['n_rois']} ROIs", f"{papers['settings']['axes']} axes", removed],
        "nothing is promised" if exact else f"epsilon {given.epsilon:g} (delta {given.delta:g})",
    )


def _continued(
    what: str, sites: Sequence[str], signers: list[str], settings: list[str], spends: str
) -> list[str]:
    lines = [
        f"About to continue {what}.",
        f"  sites so far: {', '.join(sites) or 'none'}",
        f"  signed by: {'; '.join(signers) or 'nobody'}",
        f"  settings: {', '.join(settings)}",
        f"  each person of this site spends: {spends}",
    ]
    return [printable(line) for line in lines]


def evaluation_text(found: Evaluation) -> str:
    """Metrics with intervals, one row per model, and the majority class."""
    names = tuple(METRICS[m].title for m in next(iter(found.rows.values())))
    rows = [
        (title, *(f"{number(v.value)} {bracket(v.low, v.high)}".strip() for v in row.values()))
        for title, row in found.rows.items()
    ]
    rows.append(("majority class", number(found.majority), "0.500", "0.500", "", ""))
    about = (
        f"{people(found.people)}, {found.patients} patients; abstained from {found.abstained}. "
        "95 % intervals over people."
    )
    return "\n".join([about, Table.of(("model", *names), rows).text(), *found.notes])
