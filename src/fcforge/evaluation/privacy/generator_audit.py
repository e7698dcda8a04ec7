"""The audit of a generator: many small worlds, the same attacks in each, two reference rows.

A world is one random half of the site's audited people; the generator is fitted on that half, so
that who was trained on is known. The same worlds serve every attack and are each other's shadow
models. A further part of the site (the attacker's reference) is in no world.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.randomness import numpy_rng, torch_rng
from fcforge.core.subjects import FCBatch
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_people
from fcforge.evaluation.privacy import attacks
from fcforge.evaluation.privacy.audit_result import (
    BOOTSTRAP,
    REFERENCES,
    UNTRAINED,
    AuditPlan,
    AuditResult,
    AuditRow,
)
from fcforge.evaluation.privacy.measures import (
    MEMBER,
    OUTSIDER,
    UNUSED,
    identification,
    membership,
)
from fcforge.evaluation.privacy.options import GeneratorAuditRequest
from fcforge.generators import make_generator
from fcforge.graphs import edges, fisher_z, from_edges
from fcforge.imaging.matrix_files import read_npz

Say = Callable[[str], Any]
HALVES = ("subject_id", "fc_first", "fc_second")
RECORD_ATTACKS = ("distance ratio", "DOMIAS", "class mean")  # seen by shadow models


def vectors(fc: torch.Tensor) -> np.ndarray:
    """Return Fisher-z edges (n, p) as float64."""
    return fisher_z(edges(fc)).double().numpy()


class People:
    """Audited people and the attacker's reference, with their Fisher-z edges (float64).

    `half` is another scan of the audited people, where there is one.
    """

    def __init__(
        self, batch: FCBatch, reference: FCBatch, half: torch.Tensor | None = None
    ) -> None:
        self.batch = batch
        self.x = vectors(batch.fc)
        self.y = batch.y.numpy()
        self.reference = reference
        self.ref_x = vectors(reference.fc)
        self.ref_y = reference.y.numpy()
        self.half = vectors(half) if half is not None else None


def stratified(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a boolean mask of a random `share` of each class."""
    chosen = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        # halves are rounded up or down at random: always up would favour one side
        n = int(share * len(rows) + rng.uniform(0.25, 0.75))
        chosen[rows[:n]] = True
    return chosen


def world_members(y: np.ndarray, plan: AuditPlan) -> np.ndarray:
    """Return the training subjects of each world, (K, n) of `MEMBER` and `OUTSIDER`."""
    draws = (numpy_rng(plan.seed, "audit world", k) for k in range(plan.worlds))
    inside = np.stack([stratified(y, 0.5, rng) for rng in draws])
    return np.where(inside, MEMBER, OUTSIDER)


def pseudo_members(member: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the control's members: half of each world's outsiders; true members are left out."""
    out = np.full(member.shape, UNUSED)
    for row, real in zip(out, member, strict=True):
        outside = np.flatnonzero(real == OUTSIDER)
        row[outside] = OUTSIDER
        row[rng.permutation(outside)[: len(outside) // 2]] = MEMBER
    return out


@dataclass(frozen=True)
class Evidence:
    """Scores and right links of every attack against one release: arrays over people."""

    scores: Mapping[str, np.ndarray]
    hits: Mapping[str, np.ndarray] = field(default_factory=dict)


def attack_records(who: People, released: FCBatch) -> Evidence:
    """Run every record attack against released synthetic subjects."""
    s = vectors(released.fc)
    s_y = released.y.numpy()
    scores = {
        "distance ratio": attacks.distance_ratio(who.x, s, who.ref_x),
        "DOMIAS": attacks.domias(who.x, s, who.ref_x),
        "class mean": attacks.mean_shift(who.x, who.y, s, s_y, who.ref_x, who.ref_y),
    }
    hits = {"distance ratio": attacks.linked(who.x, who.x, s, attacks.nearness)}
    if who.half is not None:
        scores["fingerprint"] = attacks.other_scan(who.half, s, who.ref_x)
        mean = who.ref_x.mean(0)
        known = (who.half - mean, who.x - mean, s - mean)
        hits["fingerprint"] = attacks.linked(*known, attacks.correlations)
    return Evidence(scores, hits)


def summarise(
    release: str,
    evidence: list[Evidence],
    member: np.ndarray,
    plan: AuditPlan,
    shadowed: Sequence[str] = RECORD_ATTACKS,
) -> Iterator[AuditRow]:
    """Return rows of one release from its worlds' evidence.

    Where there are four worlds, models of the others' `shadowed` scores attack it, too.
    """
    first = evidence[0]
    scores = {}
    for attack in first.scores:
        scores[attack] = np.stack([e.scores[attack] for e in evidence])
    if len(evidence) >= 4 and first.scores.keys() >= set(shadowed):
        features = np.stack([scores[name] for name in shadowed], 2)
        scores["shadow models"] = attacks.shadow(features, member)
    fake = pseudo_members(member, numpy_rng(plan.seed, "audit control"))
    for attack, values in scores.items():
        rng = numpy_rng(plan.seed, "audit interval", release, attack)
        area, rate = membership(values, member, rng, n_draws=plan.n_draws)
        control, _ = membership(values, fake, rng, n_draws=plan.n_draws)
        linked = None
        if attack in first.hits:
            hits = np.stack([e.hits[attack] for e in evidence])
            linked = identification(hits, member, rng, n_draws=plan.n_draws)
        found = (area, rate, linked, control, release in REFERENCES)
        yield AuditRow(release, attack, *found)


def synthetic(
    component: Component,
    train: FCBatch,
    y: torch.Tensor,
    seed: int,
    *names: str | int,
    device: str = "cpu",
) -> FCBatch:
    """Fit a generator on `train` and draw one subject per diagnosis; back on the CPU."""
    generator = make_generator(component)
    state = generator.fit(
        train.to(device), torch_rng(seed, "audit fit", component.name, *names)
    )
    rng = torch_rng(seed, "audit draw", component.name, *names)
    return generator.sample(state, y.to(device), rng).to("cpu")


def split_people(batch: FCBatch, half: torch.Tensor | None, plan: AuditPlan) -> People:
    """Cut a site into the audited people and the attacker's reference."""
    mask = stratified(
        batch.y.numpy(), plan.reference, numpy_rng(plan.seed, "audit reference")
    )
    if mask.sum() < 8 or (~mask).sum() < 16:
        raise DataError(
            f"{len(batch)} subjects are too few to audit a generator.",
            do="At least 24 are needed, and a hundred for numbers worth reading.",
        )
    index = torch.from_numpy(mask)
    rest = torch.from_numpy(~mask)
    other = half[rest] if half is not None else None
    return People(batch.select(rest), batch.select(index), other)


def about_people(who: People, member: np.ndarray, plan: AuditPlan) -> dict[str, Any]:
    """Return how many subjects an audit had and how it was made."""
    trained = int((member == MEMBER).sum(1).mean())
    counts = {"people": len(who.batch), "trained_on": trained}
    return {**counts, "reference_people": len(who.reference), "plan": asdict(plan)}


def _attacked(
    name: str,
    component: Component,
    who: People,
    member: np.ndarray,
    plan: AuditPlan,
    device: str,
) -> Iterator[AuditRow]:
    """Return rows of one release per world, attacked at once so that only scores stay in memory."""
    untrained = name == UNTRAINED
    evidence = []
    for k, inside in enumerate(member == MEMBER):
        train = who.batch.select(torch.from_numpy(inside))
        fitted_on = who.reference if untrained else train
        y = train.y.repeat(plan.multiple)
        named = (plan.seed, "reference" * untrained, k)
        released = synthetic(component, fitted_on, y, *named, device=device)
        evidence.append(attack_records(who, released))
    return summarise(name, evidence, member, plan)


def audit_request(request: GeneratorAuditRequest, say: Say) -> AuditResult:
    """Attack generators on the people of one or several sites.

    Parameters
    ----------
    request : GeneratorAuditRequest
    say : callable
        Called with messages about the progress.

    Returns
    -------
    Audit
    """
    if not request.site:
        raise ConfigError("--site is missing.", do="Name the site of the data.")
    if not request.generator:
        what = "--generator is missing."
        raise ConfigError(what, do="Name one; `fcforge list generators` shows all.")
    if request.out is not None:
        request.out.mkdir(parents=True, exist_ok=True)
    people = load_people(request.data, request.site, **request.loading)
    return audit_generators(
        people,
        request.generator,
        AuditPlan(seed=request.seed),
        halves=request.halves,
        device=request.device,
        say=say,
    )


def audit_generators(
    cohort: Cohort,
    generators: Sequence[str],
    plan: AuditPlan,
    *,
    halves: str | Path | None = None,
    device: str = "cpu",
    say: Say = lambda text: None,
) -> AuditResult:
    """Attack generators fitted on all subjects of a cohort as one site.

    Parameters
    ----------
    cohort : Cohort
        Each world trains on half of those who are not the reference.
    generators : sequence of str
    plan : AuditPlan
    halves : path, optional
        Both halves of each run (`in_halves`): generators are fitted on the second, and the
        fingerprinting attacker holds the first.
    device : str
        Where generators are fitted; attacks run on the CPU.
    say : callable

    Returns
    -------
    Audit
        Rows of the two references first: "bootstrap" copies its subjects (leaks everything),
        "untrained", corr_gauss of the reference people, never saw anybody who is audited
        (leaks nothing).
    """
    asked = {BOOTSTRAP: Component(BOOTSTRAP), UNTRAINED: Component("corr_gauss")}
    asked |= {name: Component(name) for name in generators}
    for component in asked.values():
        make_generator(component)  # a wrong name shows before minutes of attacks
    batch = FCBatch.from_numpy(cohort.fc, cohort.y)
    other = None
    if halves is not None:
        batch, other = in_halves(cohort, batch.y, halves)
    who = split_people(batch, other, plan)
    member = world_members(who.y, plan)
    rows: list[AuditRow] = []
    for name, component in asked.items():
        rows += _attacked(name, component, who, member, plan, device)
        say(f"{name}: {plan.worlds} trainings attacked")
    sites = " + ".join(cohort.site_names)
    about = {
        **about_people(who, member, plan),
        "what": f"generators at {sites}",
        "generators": {name: asdict(c) for name, c in asked.items()},
        "site": sites,
        "halves": halves is not None,
    }
    return AuditResult(tuple(rows), about)


def in_halves(
    cohort: Cohort, y: torch.Tensor, path: str | Path
) -> tuple[FCBatch, torch.Tensor]:
    """Return the second halves of those subjects' runs that a file has, and the first (n, R, R).

    The file is an .npz with ``subject_id`` (n,) and ``fc_first``, ``fc_second`` (n, E), upper
    triangles row by row; nothing in it is unpickled.
    """
    arrays = read_npz(path)
    missing = [name for name in HALVES if name not in arrays]
    if missing:
        what = f"holds no halves of runs: no {', '.join(missing)}."
        do = f"It must be an .npz with {', '.join(HALVES)}."
        raise DataError(what, where=path, do=do)
    ids, first, second = (arrays[name] for name in HALVES)
    if first.ndim != 2 or first.shape != second.shape or len(ids) != len(first):
        what = f"has shapes {ids.shape}, {first.shape}, {second.shape}."
        do = "One row of edges per subject in both halves."
        raise DataError(what, where=path, do=do)
    place = {str(subject): k for k, subject in enumerate(ids.tolist())}
    keep = np.array([subject in place for subject in cohort.subject_id])
    if not keep.any():
        raise DataError("has none of the site's subjects.", where=path)
    rows = [place[subject] for subject in cohort.subject_id[keep]]
    both = np.stack([first[rows], second[rows]]).astype(np.float32)
    before, after = from_edges(torch.from_numpy(both))
    return FCBatch(after, y[torch.from_numpy(keep)]), before
