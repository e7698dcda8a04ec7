"""What a hospital reads at its own turn: what was found at its site, how good a capsule is."""

from collections.abc import Sequence
from typing import Any

from fcforge.capsule.contents import Capsule, budget
from fcforge.capsule.keys import read_keyring
from fcforge.consortium.learning import Budget, Learned
from fcforge.consortium.members import Consortium
from fcforge.consortium.predicting import Evaluation
from fcforge.metrics import METRICS
from fcforge.report.frame import spoken
from fcforge.report.table import Table
from fcforge.requests import LearnRequest
from fcforge.text import number, with_interval


def found_words(done: Learned) -> list[str]:
    """What was found at the site and what its release spends, before anything is written."""
    return spoken("found", release=done.release, before=done.before).splitlines()


def continued_chain(capsule: Capsule) -> list[str]:
    """What a hospital is about to continue: a chained capsule."""
    asked, learner = capsule.settings, capsule.settings.learner
    settings = [learner.title, f"{asked.n_rois} ROIs", f"seed {asked.seed}"]
    settings += [f"{asked.training.epochs} epochs", f"patients are '{asked.classes[1]}'"]
    signers = [(e.get("site", e["kind"]), e["key"]) for e in capsule.entries]
    what = f"chained capsule {capsule.id[:16]}"
    return _continued(what, capsule.sites, signers, settings, budget(capsule))


def continued_group(group: Consortium, asked: LearnRequest) -> list[str]:
    """What a hospital is about to add its release to."""
    papers, keys = group.start.papers, ("mechanism", "epsilon", "delta")
    settings = [f"{papers['people']} public people of {', '.join(papers['sites'])}"]
    settings += [f"{papers['n_rois']} ROIs", f"{papers['settings']['axes']} axes"]
    settings.append(f"removes {', '.join(papers['removes']) or 'nothing'}")
    given = Budget(**{k: v for k, v in asked.release.items() if k in keys})
    signers = [(r.site, r.key) for r in group.releases]
    what = f"capsule of releases {group.digest[:16]} around start {group.start.digest[:16]}"
    spends = None if given.limit is None else (given.epsilon, given.delta)
    return _continued(what, group.sites, signers, settings, spends)


def _continued(
    what: str, sites: Sequence[str], signers: list[Any], settings: list[str], spends: Any
) -> list[str]:
    keyring = read_keyring()
    known = [(who, keyring.said(key) if key else "") for who, key in signers]
    asked: dict[str, Any] = {"sites": sites, "signers": known, "settings": settings}
    return spoken("continued", about=what, **asked, budget=spends).splitlines()


def evaluation_text(found: Evaluation) -> str:
    """Metrics with intervals, one row per model, and the majority class."""
    names = tuple(METRICS[m].title for m in next(iter(found.rows.values())))
    rows = [
        (title, *(with_interval(v.value, v.low, v.high) for v in row.values()))
        for title, row in found.rows.items()
    ]
    rows.append(("majority class", number(found.majority), "0.500", "0.500", "", ""))
    table = Table.of(("model", *names), rows).text()
    return "\n".join([spoken("evaluated", found=found), table, *found.notes])
