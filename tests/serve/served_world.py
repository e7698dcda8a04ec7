"""A consortium's folder for the tests: capsules of three methods, a run, damage, bad names."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np

from fake_runs import fake_learner
from fcforge.capsule import Settings, learn, open_capsule, seal, settings_for, with_audit
from fcforge.report import write_report
from fcforge.runner.collect import describe_sites
from fcforge.runner.experiment import Experiment
from fcforge.runner.plan import make_plan
from fcforge.runner.store import Store
from fcforge.serve.server import PageServer, make_server
from fcforge.sites import Cohort
from fcforge.sites.simulated import simulate
from fcforge.types import Component, LearnerSpec, Training

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
ANALYTIC = LearnerSpec(Component("analytic"), Component("linear"))


@cache
def cohort(n_rois: int = 10) -> Cohort:
    return simulate("hard", n_rois=n_rois, n_sites=2, scale=0.3, seed=1)


def settings(spec: LearnerSpec, n_rois: int, held_out: int = 8) -> Settings:
    return settings_for(spec, n_rois, training=Training(epochs=1), held_out=held_out)


def renamed(names: dict[str, str], n_rois: int = 10) -> Cohort:
    found = cohort(n_rois)
    return replace(found, site=np.array([names.get(s, s) for s in found.site.tolist()]))


def make_capsules(folder: Path) -> None:
    """a chain of AAL capsules with an audit, a small one with an evil name, a damaged one."""
    a, b = dict.fromkeys(cohort().site.tolist())
    aal = cohort(116)
    learn(None, a, aal, folder / "chain/1.capsule", settings=settings(ANALYTIC, 116))
    learn(folder / "chain/1.capsule", b, aal, folder / "chain/2.capsule")
    result = {
        EVIL: "text",
        "what": EVIL,
        "bootstrap / DOMIAS": {"auc": [0.97, 0.9, 1.0], "identified": None},
    }
    seal(with_audit(open_capsule(folder / "chain/2.capsule"), result), folder / "chain/3.capsule")
    learn(
        None, EVIL, renamed({a: EVIL}), folder / "evil.capsule", settings=settings(ANALYTIC, 10)
    )  # fmt: skip
    data = bytearray((folder / "evil.capsule").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "damaged.capsule").write_bytes(bytes(data))
    majority = LearnerSpec(Component("majority"), Component("linear"))
    learn(None, a, cohort(), folder / "unpacked", settings=settings(majority, 10, held_out=0))


def make_run(folder: Path, title: str = "two made-up hospitals", evil: str = "") -> None:
    """A finished run folder with a report, written without training."""
    names = dict.fromkeys(cohort().site.tolist())
    sites = [evil or name if k == 0 else name for k, name in enumerate(names)]
    learners = tuple(
        LearnerSpec(Component(m), Component("linear"), title=label)
        for m, label in (("finetune", evil or "finetune/linear"), ("cumulative", "cumulative"))
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
    write_report(fake_learner("finetune/gcn", seeds=(0,)), folder / "report.html", n_draws=20)


def make_world(folder: Path) -> Path:
    make_capsules(folder)
    make_run(folder / "runs" / "first")
    make_run(folder / "runs" / "evil", title=EVIL, evil=EVIL)
    (folder / "runs" / "broken").mkdir()
    (folder / "runs" / "broken" / "experiment.json").write_text('{"experiment": 3}')
    return folder


def item_id(relative: str) -> str:
    return sha256(relative.encode()).hexdigest()[:12]


@contextmanager
def serving(folder: Path) -> Iterator[PageServer]:
    server = make_server(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetch(
    server: PageServer, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    """One raw request: the path is sent exactly as given."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True)
        if host != "":
            connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
        connection.endheaders()
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    finally:
        connection.close()
