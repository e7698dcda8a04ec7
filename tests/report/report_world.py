"""A folder for the tests: consortium files of both models, runs, audits, damage, bad names."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from small_exchange import given, sites, start

from fcforge.core.component import Component
from fcforge.core.estimate import Estimate
from fcforge.core.spec import LearnerSpec, Training
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort
from fcforge.data.simulated import simulate
from fcforge.data.splits import split_site
from fcforge.evaluation.generator_quality.summary import Portraits, write_portraits
from fcforge.evaluation.privacy.audit_result import AuditResult, AuditRow
from fcforge.experiments.collect import describe_sites
from fcforge.experiments.config import Experiment
from fcforge.experiments.plan import make_plan, stored_runs
from fcforge.experiments.store import Store
from fcforge.report.audits import write_files
from fcforge_consortium.chains.chain import empty_chain
from fcforge_consortium.chains.settings import settings_for
from fcforge_consortium.records.exchange import Exchange, save

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
ANALYTIC = LearnerSpec(Component("analytic"), Component("linear"))


@cache
def cohort(n_rois: int = 10) -> Cohort:
    return simulate("hard", n_rois=n_rois, n_sites=2, scale=0.3, seed=1)


def renamed(names: dict[str, str], n_rois: int = 10) -> Cohort:
    found = cohort(n_rois)
    return replace(found, site=np.array([names.get(s, s) for s in found.site.tolist()]))


def audit(site: str = "NYU", leak: float = 0.94) -> AuditResult:
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
        "what": "exchange 0123456789abcdef",
        "site": site,
        "plan": {"seed": 0},
        "people": 90,
    }
    return AuditResult(rows, {**about, "not_attacked": ["state bandit"]})


@cache
def chains() -> list[Exchange]:
    """A chain of analytic ridge over the sites of `cohort`: after the first, after both."""
    people = cohort(116)
    settings = settings_for(
        ANALYTIC,
        116,
        training=Training(epochs=1),
        held_out=8,
        roi_names=people.roi_names,
    )
    made = [empty_chain(settings, Target(classes=("TC", "ASD")), people.site_names[0])]
    for site in people.site_names:
        own = split_site(people, site, settings.seed)
        made.append(made[-1].model.after(own)[0].on_record(None))
    return made[1:]


def chain() -> Exchange:
    return chains()[-1]


@cache
def releases() -> Exchange:
    """Two contributions to a base model, one of them signed."""
    first, second = sites()[2:4]
    return start().merged(given(first).exchange, given(second).exchange)


def make_files(folder: Path) -> None:
    """Two files of a chain, one of releases, a start alone, a damaged one."""
    (folder / "chain").mkdir(parents=True)
    save(chains()[0], folder / "chain/1.fcx")
    save(chain(), folder / "chain/2.fcx")
    save(releases(), folder / "releases.fcx")
    save(start(), folder / "start.fcx")
    data = bytearray((folder / "releases.fcx").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "damaged.fcx").write_bytes(bytes(data))


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
            "runs": stored_runs(plan),
        }
    )


def portraits(rows: Sequence[str] = ("real", "mine"), n_rois: int = 12) -> Portraits:
    """The same picture of every row."""
    rng = np.random.default_rng(0)
    fc = np.corrcoef(rng.normal(size=(n_rois, 5 * n_rois)))
    edges = np.linspace(-0.2, 0.6, n_rois * (n_rois - 1) // 2)
    one = (fc, fc, edges, np.linspace(3, 0.1, n_rois))
    every = [np.stack([x] * len(rows)) for x in one]
    where = np.array("Site NYU, seed 0.")
    return Portraits(np.array(rows), *every, np.array([], dtype=str), where)


def make_judged(folder: Path) -> None:
    """Write the results of `fcforge judge` for two generators."""
    folder.mkdir(parents=True)
    write_portraits(folder, portraits())
    numbers = {"psd_share": 1.0, "warnings": []}
    about = {"row": "mine", "seed": 0, "diagnostics": {}, "numbers": numbers}
    kept = {"title": "Judged", "sites": {"NYU": [about]}}
    (folder / "records.json").write_text(json.dumps(kept))


def make_world(folder: Path) -> Path:
    make_files(folder)
    make_run(folder / "runs" / "first")
    write_files(audit(), folder / "audits" / "nyu")
    make_run(folder / "runs" / "evil", title=EVIL, evil=EVIL)
    make_judged(folder / "judged")
    (folder / "runs" / "broken").mkdir()
    (folder / "runs" / "broken" / "experiment.json").write_text('{"experiment": 3}')
    return folder
