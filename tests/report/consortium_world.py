"""A consortium's folder for the tests: capsules of three methods, a run, damage, bad names."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from fcforge.capsule import (
    ChainSettings,
    LearnOptions,
    learn,
    open_capsule,
    seal,
    settings_for,
    with_audit,
)
from fcforge.capsule.keys import read_private, write_keys
from fcforge.report.audits import write_files
from fcforge.runner.collect import describe_sites
from fcforge.runner.experiment import Experiment
from fcforge.runner.plan import make_plan
from fcforge.runner.store import Store
from fcforge.sites import Cohort
from fcforge.sites.simulated import simulate
from fcforge.studies.audit_result import Audit, AuditRow
from fcforge.types import Component, Estimate, LearnerSpec, Training

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
ANALYTIC = LearnerSpec(Component("analytic"), Component("linear"))


@cache
def cohort(n_rois: int = 10) -> Cohort:
    return simulate("hard", n_rois=n_rois, n_sites=2, scale=0.3, seed=1)


def settings(spec: LearnerSpec, n_rois: int, held_out: int = 8) -> ChainSettings:
    named = cohort(n_rois).roi_names if n_rois == 116 else ()
    rest = {"training": Training(epochs=1), "held_out": held_out, "roi_names": named}
    return settings_for(spec, n_rois, **rest)


def renamed(names: dict[str, str], n_rois: int = 10) -> Cohort:
    found = cohort(n_rois)
    return replace(found, site=np.array([names.get(s, s) for s in found.site.tolist()]))


def write_key(folder: Path) -> Path:
    if not (folder / "hospital").exists():
        write_keys(folder / "hospital")
    return folder / "hospital"


def audit(site: str = "NYU", leak: float = 0.94) -> Audit:
    """Hand-made: a network that leaks, synthetic subjects that do not, both references."""

    def row(release: str, attack: str, auc: float, reference: bool = False) -> AuditRow:
        near = Estimate(auc, round(auc - 0.06, 2), min(round(auc + 0.06, 2), 1.0))
        return AuditRow(
            release,
            attack,
            near,
            Estimate(0.3, 0.1, 0.5),
            None,
            Estimate(0.5, 0.4, 0.6),
            reference,
        )

    rows = (
        row("bootstrap", "nearest record", 1.0, True),
        row("untrained", "nearest record", 0.51, True),
        row("synthetic subjects", "nearest record", 0.53),
        row("network", "loss", leak),
    )
    about = {
        "what": "capsule 0123456789abcdef",
        "site": site,
        "plan": {"seed": 0},
        "people": 90,
    }
    return Audit(rows, {**about, "not_attacked": ["state bandit"]})


def make_capsules(folder: Path) -> None:
    """a chain of AAL capsules with an audit, a small one with an evil name, a damaged one."""
    a, b = dict.fromkeys(cohort().site.tolist())
    aal = cohort(116)
    key = read_private(write_key(folder.parent))
    mine, first = LearnOptions(key=key), settings(ANALYTIC, 116)
    learn(None, a, aal, folder / "chain/1.capsule", settings=first, options=mine)
    learn(folder / "chain/1.capsule", b, aal, folder / "chain/2.capsule", options=mine)
    audited = with_audit(open_capsule(folder / "chain/2.capsule"), audit(b).to_ledger())
    seal(audited, folder / "chain/3.capsule", key=key)
    learn(
        None,
        EVIL,
        renamed({a: EVIL}),
        folder / "evil.capsule",
        settings=settings(ANALYTIC, 10),
    )
    data = bytearray((folder / "evil.capsule").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "damaged.capsule").write_bytes(bytes(data))
    majority = LearnerSpec(Component("majority"), Component("linear"))
    learn(
        None,
        a,
        cohort(),
        folder / "unpacked",
        settings=settings(majority, 10, held_out=0),
    )


def make_run(
    folder: Path, title: str = "two made-up hospitals", evil: str = ""
) -> None:
    """A finished run folder with a report, written without training."""
    names = dict.fromkeys(cohort().site.tolist())
    sites = [evil or name if k == 0 else name for k, name in enumerate(names)]
    learners = tuple(
        LearnerSpec(Component(m), Component("linear"), title=label)
        for m, label in (
            ("finetune", evil or "finetune/linear"),
            ("cumulative", "cumulative"),
        )
    )
    experiment = Experiment(Component("simulated"), learners, title=title, seeds=(0,))
    data = renamed({next(iter(names)): sites[0]})
    facts = describe_sites(data, experiment)
    store = Store(folder)
    plan = make_plan(experiment.specs(sites), sites)
    for key, node in plan.nodes.items():
        scores = {}
        for k, site in enumerate(sites):
            y = facts["0"][site]["labels"]
            right = 0.9 if site in node.spec.order else 0.45
            scores[site] = [right if v else 1 - right + 0.01 * k for v in y]
        store.write_node(
            key,
            {"memory_bytes": 0, "seconds": 1.0, "environment": {}, "pools": []},
            {s: np.array(v, dtype=np.float32) for s, v in scores.items()},
            None,
        )
    store.write_experiment(
        {
            "experiment": experiment.to_json(),
            "sites": sites,
            "site_facts": facts,
            "data_sha256": "",
        }
    )


def make_world(folder: Path) -> Path:
    make_capsules(folder)
    make_run(folder / "runs" / "first")
    write_files(audit(), folder / "audits" / "nyu")
    make_run(folder / "runs" / "evil", title=EVIL, evil=EVIL)
    (folder / "runs" / "broken").mkdir()
    (folder / "runs" / "broken" / "experiment.json").write_text('{"experiment": 3}')
    return folder
