"""The audit of a generator: many small worlds, the same attacks in each, two reference rows.

A world is one random half of the site's audited people; the generator is fitted on that half, so
that who was trained on is known. The same worlds serve every attack and are each other's shadow
models. A further part of the site (the attacker's reference) is in no world.

Shapes: n people, r reference people, R ROIs, E (or p) edges, K worlds.
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

    Attributes
    ----------
    batch, reference : FCBatch
        Audited people; people of the same site whom the attacker knows and no world trains on.
    x, ref_x : ndarray of shape (n, p), (r, p)
        Their Fisher-z edges.
    y, ref_y : ndarray of shape (n,), (r,)
        Their diagnoses.
    half : ndarray of shape (n, p) or None
        Edges of another scan of the audited people, if there is one.
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
    """Choose a random share of each class.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Classes.
    share : float
    rng : numpy Generator

    Returns
    -------
    ndarray of bool, shape (n,)
    """
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
    """Results of all attacks against one release, by name of the attack.

    Attributes
    ----------
    scores : mapping of str to ndarray of shape (n,)
        Score of each audited person, higher for "was trained on".
    hits : mapping of str to ndarray of shape (n,)
        1 for people whom the attack links to the right scan; only of attacks that link.
    """

    scores: Mapping[str, np.ndarray]
    hits: Mapping[str, np.ndarray] = field(default_factory=dict)


def attack_records(people: People, released: FCBatch) -> Evidence:
    """Run every attack on records against released synthetic subjects.

    Parameters
    ----------
    people : People
        Attacked people and the attacker's reference.
    released : FCBatch
        The synthetic subjects of one world.
    """
    records = vectors(released.fc)
    records_y = released.y.numpy()
    scores = {
        "distance ratio": attacks.distance_ratio(people.x, records, people.ref_x),
        "DOMIAS": attacks.domias(people.x, records, people.ref_x),
        "class mean": attacks.mean_shift(
            people.x, people.y, records, records_y, people.ref_x, people.ref_y
        ),
    }
    # here the attacker already has the scan, and asks which record was made from it
    hits = {
        "distance ratio": attacks.linked(people.x, people.x, records, attacks.nearness)
    }
    if people.half is not None:
        scores["fingerprint"] = attacks.other_scan(people.half, records, people.ref_x)
        mean = people.ref_x.mean(0)
        known = (people.half - mean, people.x - mean, records - mean)
        hits["fingerprint"] = attacks.linked(*known, attacks.correlations)
    return Evidence(scores, hits)


def summarise(
    release: str,
    evidence: list[Evidence],
    member: np.ndarray,
    plan: AuditPlan,
    shadowed: Sequence[str] = RECORD_ATTACKS,
) -> Iterator[AuditRow]:
    """Yield one row per attack on one release, from the evidence of its K worlds.

    With at least four worlds the shadow-model attack is added: it learns from the other worlds how
    the `shadowed` attacks score members and others.

    Parameters
    ----------
    release : str
        Name of the row.
    evidence : list of Evidence
        One per world.
    member : ndarray of shape (K, n)
        `MEMBER`, `OUTSIDER` or `UNUSED` for each person in each world.
    plan : AuditPlan
    shadowed : sequence of str
        Attacks whose scores the shadow models use.
    """
    first = evidence[0]
    scores = {}
    for attack in first.scores:
        scores[attack] = np.stack([e.scores[attack] for e in evidence])
    if len(evidence) >= 4 and first.scores.keys() >= set(shadowed):
        features = np.stack([scores[name] for name in shadowed], 2)
        scores["shadow models"] = attacks.shadow(features, member)
    control_members = pseudo_members(member, numpy_rng(plan.seed, "audit control"))
    for attack, values in scores.items():
        rng = numpy_rng(plan.seed, "audit interval", release, attack)
        area, rate = membership(values, member, rng, n_draws=plan.n_draws)
        control, _ = membership(values, control_members, rng, n_draws=plan.n_draws)
        linked = None
        if attack in first.hits:
            hits = np.stack([e.hits[attack] for e in evidence])
            linked = identification(hits, member, rng, n_draws=plan.n_draws)
        measured = (area, rate, linked, control, release in REFERENCES)
        yield AuditRow(release, attack, *measured)


def synthetic(
    component: Component,
    train: FCBatch,
    y: torch.Tensor,
    seed: int,
    *names: str | int,
    device: str = "cpu",
) -> FCBatch:
    """Fit a generator on `train` and draw one synthetic subject per diagnosis in `y`, on the CPU.

    Parameters
    ----------
    component : Component
        Name and settings of the generator.
    train : FCBatch
        Subjects to fit.
    y : Tensor of shape (m,)
        Diagnoses of the m synthetic subjects.
    seed : int
    *names : str or int
        Names from which, with the seed, the randomness of fit and draw is derived.
    device : str
        Where the generator is fitted and drawn from.
    """
    generator = make_generator(component)
    state = generator.fit(
        train.to(device), torch_rng(seed, "audit fit", component.name, *names)
    )
    rng = torch_rng(seed, "audit draw", component.name, *names)
    return generator.sample(state, y.to(device), rng).to("cpu")


def split_people(batch: FCBatch, half: torch.Tensor | None, plan: AuditPlan) -> People:
    """Split a site into the audited people and the attacker's reference.

    Parameters
    ----------
    batch : FCBatch
        All people of the site.
    half : Tensor of shape (n, R, R) or None
        FC of another scan of each of them.
    plan : AuditPlan

    Raises
    ------
    DataError
        If the people are too few.
    """
    in_reference = stratified(
        batch.y.numpy(), plan.reference, numpy_rng(plan.seed, "audit reference")
    )
    if in_reference.sum() < 8 or (~in_reference).sum() < 16:
        raise DataError(
            f"{len(batch)} subjects are too few to audit a generator.",
            do="At least 24 are needed, and a hundred for numbers worth reading.",
        )
    reference = torch.from_numpy(in_reference)
    audited = torch.from_numpy(~in_reference)
    other_scan = half[audited] if half is not None else None
    return People(batch.select(audited), batch.select(reference), other_scan)


def about_people(people: People, member: np.ndarray, plan: AuditPlan) -> dict[str, Any]:
    """Return how many subjects an audit had and how it was made."""
    trained = int((member == MEMBER).sum(1).mean())
    counts = {"people": len(people.batch), "trained_on": trained}
    return {**counts, "reference_people": len(people.reference), "plan": asdict(plan)}


def _attacked(
    name: str,
    component: Component,
    people: People,
    member: np.ndarray,
    plan: AuditPlan,
    device: str,
) -> Iterator[AuditRow]:
    """Return the rows of one generator, fitted and attacked in every world.

    Each world's synthetic subjects are attacked at once, so that only scores stay in memory.

    Parameters
    ----------
    name : str
        Name of the rows. For `UNTRAINED` the generator is fitted to the reference people, not to the world.
    component : Component
        Name and settings of the generator.
    people : People
    member : ndarray of shape (K, n)
        `MEMBER` or `OUTSIDER` for each person in each world.
    plan : AuditPlan
    device : str
    """
    untrained = name == UNTRAINED
    evidence = []
    for k, inside in enumerate(member == MEMBER):
        train = people.batch.select(torch.from_numpy(inside))
        fitted_on = people.reference if untrained else train
        y = train.y.repeat(plan.multiple)
        purpose = "reference" if untrained else ""  # part of the seed
        seed_names = (plan.seed, purpose, k)
        released = synthetic(component, fitted_on, y, *seed_names, device=device)
        evidence.append(attack_records(people, released))
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
    AuditResult
    """
    if not request.site:
        raise ConfigError("--site is missing.", do="Name the site of the data.")
    if not request.generator:
        message = "--generator is missing."
        raise ConfigError(message, do="Name one; `fcforge list generators` shows all.")
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
    AuditResult
        Rows of the two references first: "bootstrap" copies its subjects (leaks everything),
        "untrained", corr_gauss of the reference people, never saw anybody who is audited
        (leaks nothing).
    """
    components = {BOOTSTRAP: Component(BOOTSTRAP), UNTRAINED: Component("corr_gauss")}
    components |= {name: Component(name) for name in generators}
    for component in components.values():
        make_generator(component)  # a wrong name shows before minutes of attacks
    batch = FCBatch.from_numpy(cohort.fc, cohort.y)
    first_halves = None
    if halves is not None:
        batch, first_halves = in_halves(cohort, batch.y, halves)
    people = split_people(batch, first_halves, plan)
    member = world_members(people.y, plan)
    rows: list[AuditRow] = []
    for name, component in components.items():
        rows += _attacked(name, component, people, member, plan, device)
        say(f"{name}: {plan.worlds} trainings attacked")
    sites = " + ".join(cohort.site_names)
    about = {
        **about_people(people, member, plan),
        "what": f"generators at {sites}",
        "generators": {name: asdict(c) for name, c in components.items()},
        "site": sites,
        "halves": halves is not None,
    }
    return AuditResult(tuple(rows), about)


def in_halves(
    cohort: Cohort, y: torch.Tensor, path: str | Path
) -> tuple[FCBatch, torch.Tensor]:
    """Read the FC of both halves of each subject's run from a file.

    Parameters
    ----------
    cohort : Cohort
        Subjects of the site; those that the file does not have are left out.
    y : Tensor
        Their diagnoses.
    path : path
        An .npz with ``subject_id`` (n,) and ``fc_first``, ``fc_second`` (n, E), upper triangles
        row by row; nothing in it is unpickled.

    Returns
    -------
    second : FCBatch
        Second halves, on which generators are fitted.
    first : Tensor of shape (n, R, R)
        First halves, which the fingerprinting attacker holds.
    """
    arrays = read_npz(path)
    missing = [name for name in HALVES if name not in arrays]
    if missing:
        problem = f"holds no halves of runs: no {', '.join(missing)}."
        hint = f"It must be an .npz with {', '.join(HALVES)}."
        raise DataError(problem, where=path, do=hint)
    ids, first, second = (arrays[name] for name in HALVES)
    if first.ndim != 2 or first.shape != second.shape or len(ids) != len(first):
        problem = f"has shapes {ids.shape}, {first.shape}, {second.shape}."
        hint = "One row of edges per subject in both halves."
        raise DataError(problem, where=path, do=hint)
    row_of = {str(subject): k for k, subject in enumerate(ids.tolist())}
    keep = np.array([subject in row_of for subject in cohort.subject_id])
    if not keep.any():
        raise DataError("has none of the site's subjects.", where=path)
    rows = [row_of[subject] for subject in cohort.subject_id[keep]]
    halves = np.stack([first[rows], second[rows]]).astype(np.float32)
    before, after = from_edges(torch.from_numpy(halves))
    return FCBatch(after, y[torch.from_numpy(keep)]), before
