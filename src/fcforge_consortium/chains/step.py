"""One hospital's step of a chain: what came in and its own open site, trained and measured.

What it hands on is a lane and synthetic subjects, held against the model they name when they are
read.

The step is the one that `fcforge run` would do for that order and seed, bit by bit: the site is
trained by the same engine call with one torch thread, and remembered synthetic subjects travel as
the exact float32 numbers they were.

While a site is open a generator fitted on its training part alone makes a set of synthetic
subjects that no learner ever trains on. They travel, so that the next hospital can measure what
happened to the sites before it. They are easier than real subjects (they are drawn from a model of
the training part), so read them as a change over time, not as a diagnosis rate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from fcforge import graphs
from fcforge.core import randomness
from fcforge.core.errors import ExchangeError
from fcforge.core.subjects import FCBatch, Site
from fcforge.core.target import TWO_CLASSES, Target, strata
from fcforge.data import scan_checks
from fcforge.data.cohort import Cohort
from fcforge.data.splits import SPLITS
from fcforge.experiments.site_loader import SiteLoader
from fcforge.generators import cache, make_generator
from fcforge.methods import Lane
from fcforge.methods.base import Learner
from fcforge.nn.resources import one_thread
from fcforge.replay.bank import PoolName
from fcforge.replay.state import rows_of
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site
from fcforge.training.start import start_lane
from fcforge_consortium.base_model.quality import fit_temperature, quality
from fcforge_consortium.chains.declared import Declared, alike, declared_state
from fcforge_consortium.chains.settings import ChainSettings
from fcforge_consortium.ledger.people import People, people_of
from fcforge_consortium.records.archive import load_arrays, save_arrays
from fcforge_consortium.records.kinds import ScanLimits, SplitCounts, StepCounts

Tick = Callable[[], Any]
CARRIED = "(from earlier sites)"
SMALL_CELL = 10  # counts of subjects below this are never written
STEPS_OF_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
FEWEST = 4  # synthetic subjects that axes are made of
# All that a network whose numbers do not fit each other was seen to raise.
MISFIT = (RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError)
REMEMBERED = "remembered"
PARTS = (REMEMBERED, "held_out")  # subjects that travel
NOBODY = torch.zeros(0, dtype=torch.int64)


# -- what travels ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Subjects:
    """Subjects that travel, as upper triangles of their FC.

    Attributes
    ----------
    upper : Tensor of shape (m, R (R - 1) / 2), float32
    y : Tensor of shape (m,), int64, or float32 of a number
    site : Tensor of shape (m,), int64
        Place of their site in the chain.
    """

    upper: Tensor
    y: Tensor
    site: Tensor

    @classmethod
    def none(cls, n_rois: int, target: Target = TWO_CLASSES) -> Self:
        """Nobody."""
        y = NOBODY if target.classes else NOBODY.float()
        return cls(torch.zeros(0, n_rois * (n_rois - 1) // 2), y, NOBODY)

    @classmethod
    def of(cls, batch: FCBatch, site: Tensor) -> Self:
        """Subjects of a batch whose FC is exactly what its upper triangle says."""
        upper = graphs.edges(batch.fc).float()
        if not torch.equal(graphs.from_edges(upper), batch.fc):
            raise ExchangeError(
                "an FC matrix is not symmetric with unit diagonal, so that it would change on "
                "its way.",
                do="Generators must return symmetric matrices with ones on the diagonal.",
            )
        return cls(upper, batch.y, site)

    def __len__(self) -> int:
        return int(self.y.shape[0])

    def batch(self) -> FCBatch:
        """Their FC and labels."""
        return FCBatch(graphs.from_edges(self.upper), self.y)

    def of_site(self, place: int) -> FCBatch:
        """FC and labels of one site's."""
        return self.batch().select(self.site == place)

    def join(self, other: Self) -> Self:
        """These, then the others."""
        mine = vars(self)
        theirs = vars(other)
        return type(self)(**{k: torch.cat([mine[k], theirs[k]]) for k in mine})


class State(NamedTuple):
    """All that a chain's next hospital needs.

    Attributes
    ----------
    lane : Lane
        Rows of its state are places in `remembered`.
    remembered : Subjects
        What the method replays.
    held_out : Subjects
        Synthetic subjects of every site, never trained on.
    """

    lane: Lane
    remembered: Subjects
    held_out: Subjects

    def to_bytes(self) -> bytes:
        """As a payload."""
        return save_arrays({k: v.detach().numpy() for k, v in self.named().items()})

    def named(self) -> dict[str, Tensor]:
        """Every array by its name in the payload."""
        found = self.lane.named()
        for part in PARTS:
            subjects = vars(getattr(self, part))
            found |= {f"{part}/{key}": value for key, value in subjects.items()}
        return found


def empty_state(n_rois: int, target: Target = TWO_CLASSES) -> State:
    """What the first hospital of a chain is handed: nothing learned, nobody remembered."""
    nobody = Subjects.none(n_rois, target)
    return State(Lane({}, {}), nobody, nobody)


def read_state(
    data: bytes,
    settings: ChainSettings,
    n_sites: int,
    what: str,
    target: Target = TWO_CLASSES,
) -> State:
    """The state of a payload; anything that is not exactly one raises `ExchangeError`."""
    found: dict[str, Tensor] = {}
    for name, value in load_arrays(data, what).items():
        found[name] = torch.from_numpy(np.array(value))
    learner = settings.build(target)
    sizes = {part: found.get(f"{part}/y", NOBODY).numel() for part in PARTS}
    declared = _declared(learner, n_sites, sizes, target)
    for name in sorted(declared.keys() ^ found.keys()):
        missing = "is missing" if name in declared else "belongs nowhere"
        raise ExchangeError(f"array '{name:.80}' {missing}.")
    for name, one in declared.items():
        if wrong := one.complaint(found[name]):
            raise ExchangeError(f"array '{name}' {wrong}.")
    subjects = [_taken_out(found, part) for part in PARTS]
    lane = Lane.from_named(found, learner.method.State)
    _require_answers(learner, lane)
    return State(lane, *subjects)


def _taken_out(arrays: dict[str, Tensor], part: str) -> Subjects:
    """The subjects of a part, which is no longer among the arrays."""
    names = [field.name for field in fields(Subjects)]
    return Subjects(**{name: arrays.pop(f"{part}/{name}") for name in names})


def _declared(
    learner: Learner, n_sites: int, sizes: Mapping[str, int], target: Target
) -> dict[str, Declared]:
    """Every array of a state with so many subjects of either kind, after so many sites."""
    model = learner.model
    method = learner.method
    with torch.device("meta"):  # shapes alone: a forged size costs no memory
        lane = Lane(model.init(randomness.torch_rng(0)), model.init_stats())
        n_learned = 1 if method.depends_on == "site" else n_sites
        state = declared_state(method, model, lane, n_learned)
        rows = rows_of(method.start(model, lane).state)
    for key in rows:  # places among the subjects that travel, or -1
        low = max(state[key].low, -1)
        state[key] = state[key]._replace(low=low, high=sizes[REMEMBERED] - 1)
    found = alike(lane.named()) | {f"state/{key}": one for key, one in state.items()}
    n_edges = model.n_rois * (model.n_rois - 1) // 2
    y = Declared((0,), low=-1, high=1)
    if target.classes:
        y = Declared((0,), torch.int64, low=0, high=len(target.classes) - 1)
    for part, n in sizes.items():
        found[f"{part}/upper"] = Declared((n, n_edges), low=-1, high=1)
        found[f"{part}/y"] = y._replace(shape=(n,))
        found[f"{part}/site"] = Declared((n,), torch.int64, low=0, high=n_sites - 1)
    return found


def _require_answers(learner: Learner, lane: Lane) -> None:
    """Raise unless the network answers."""
    model = learner.model
    try:
        with torch.no_grad():
            eye = torch.eye(model.n_rois).expand(2, -1, -1)
            logits = learner.method.logits(model, lane, model.prepare(eye))
    except MISFIT as error:
        what = f"the network does not work ({type(error).__name__})."
        raise ExchangeError(what) from error
    wanted = (2, model.n_outputs)
    if logits.shape != wanted or not bool(torch.isfinite(logits).all()):
        raise ExchangeError("the network does not give finite scores of each subject.")


# -- a step ----------------------------------------------------------------------------------------
def scores_of(learner: Learner, lane: Lane, fc: Tensor) -> np.ndarray:
    """Log odds (n,) of a lane for FC (n, R, R), not calibrated.

    Of more than two classes the log probability of each (n, K), of a number the number (n,).
    """
    with torch.no_grad():
        inputs = learner.model.prepare(fc)
        u = learner.method.logits(learner.model, lane, inputs).double()
    if u.shape[1] == 1:
        return u[:, 0].numpy()
    if u.shape[1] > 2:
        return u.log_softmax(1).numpy()
    return (u[:, 1] - u[:, 0]).numpy()


class SiteStep:
    """What came in and the site that is learned next.

    Parameters
    ----------
    settings : ChainSettings
    sites : sequence of str
        Learned before, in order.
    before : State
        What the last of them handed on; empty at the first hospital.
    site : Site
    target : Target
    """

    def __init__(
        self,
        settings: ChainSettings,
        sites: Sequence[str],
        before: State,
        site: Site,
        target: Target = TWO_CLASSES,
    ) -> None:
        self.settings = settings
        self.sites = (*sites, site.name)
        self.before = before
        self.site = site
        self.target = target
        self.learner = settings.build(target)
        self.loader = SiteLoader()
        self._rows = self._carry(before.remembered)
        fresh = not sites or self.learner.method.depends_on == "site"
        order = (site.name,) if fresh else self.sites
        self.spec = settings.spec(order)  # node of the prefix tree
        self.lane = start_lane(self.learner, settings.seed) if fresh else self._lane()

    def _carry(self, carried: Subjects) -> Tensor:
        """Bank rows of the subjects that came in, (m,); of one kind, which the method declares."""
        if not len(carried):
            return torch.zeros(0, dtype=torch.int64)
        kind = self.settings.keeps.removesuffix(" subjects")
        pool = PoolName(kind, CARRIED, self.settings.seed, kind)
        return self.loader.bank.add(pool, carried.batch())

    def _lane(self) -> Lane:
        """The lane that came in, its state's places turned into bank rows.

        Sums over arrays (gradient norm, penalties) are rounded by order; a run reads its lanes
        back from files sorted by name.
        """
        lane = self.before.lane
        state = self.loader.from_places(lane.state, self._rows)
        params, stats = ({k: part[k] for k in sorted(part)} for part in lane[:2])
        return Lane(params, stats, state)

    def train(self, *, with_val: bool, tick: Tick) -> Lane:
        """Lane after the site."""
        view = self.loader.view(self.site, self.spec, with_val=with_val)
        job = Job(self.lane, view, self.spec.seed, self.spec.order)
        bank = self.loader.bank
        with one_thread():
            lanes = learn_site(self.learner, [job], bank, self.spec.training, tick=tick)
        return lanes[0]

    def finished(self, lane: Lane) -> State:
        """What is handed on: rows become places among the subjects that travel."""
        held_out = self._held_out()
        bank = self.loader.bank
        state, rows = self.loader.to_places(lane.state)
        packed = lane._replace(state=state)
        if not len(rows):
            nobody = Subjects.none(self.settings.n_rois, self.target)
            return State(packed, nobody, held_out)
        origin = torch.full((len(bank),), len(self.sites) - 1)
        origin[self._rows] = self.before.remembered.site
        batch = FCBatch(bank.fc(rows), bank.y[rows])
        return State(packed, Subjects.of(batch, origin[rows]), held_out)

    def _held_out(self) -> Subjects:
        """Synthetic held-out subjects of all sites, this one last.

        The generator is the one that replay uses where both are the same (fitted once per site
        and seed); the draw is another one.
        """
        settings = self.settings
        before = self.before.held_out
        n = settings.held_out
        if not n:
            return before
        learned = self.site.learning(with_val=settings.learns_val)
        own = settings.learner.generator
        named = settings.held_out_generator
        generator = make_generator(own if own and own.name == named.name else named)
        names = (settings.seed, "generator", self.site.name)
        state = cache.fit_cached(generator, learned, names, None)
        y = generator.diagnoses(state, learned.y, n)
        batch = generator.sample(state, y, randomness.torch_rng(*names, "held-out", n))
        place = torch.full((len(batch),), len(self.sites) - 1, dtype=torch.int64)
        return before.join(Subjects.of(batch, place))

    def measured(self, lane: Lane, held_out: Subjects) -> dict[str, Any]:
        """What the step says of the site and the network: counts, accuracy, temperature, limits."""
        counts = counts_of(self.site, self.target)
        synthetic = {}
        for place, name in enumerate(self.sites):
            batch = held_out.of_site(place)
            if len(batch):
                synthetic[name] = round(self._accuracy(lane, batch), 4)
        own = None
        if len(self.site.test) and self.target.classes:
            tested = (counts.test.controls, counts.test.patients)
            own = published_share(self._accuracy(lane, self.site.test), tested)
        return {
            "counts": counts,
            "held_out": synthetic,
            "own_test": own,
            "temperature": self._temperature(lane),
            "reference": self._limits(held_out),
        }

    def _accuracy(self, lane: Lane, batch: FCBatch) -> float:
        scores = scores_of(self.learner, lane, batch.fc)
        found = quality(scores, batch.y.numpy(), self.target)
        return found["accuracy"]

    def _temperature(self, lane: Lane) -> float | None:
        """Temperature of this hospital, by the log odds of its validation part.

        Where that was folded into training (nothing was chosen on it), a second network is
        trained without it, only to be measured.
        """
        batch = self.site.val
        if self.settings.calibrate == "none" or not len(batch):
            return None
        if self.settings.learns_val:
            lane = self.train(with_val=False, tick=lambda: None)
        odds = scores_of(self.learner, lane, batch.fc)
        return round(fit_temperature(odds, batch.y.numpy()), 4)

    def _limits(self, held_out: Subjects) -> ScanLimits:
        """Limits of ordinary scans; None without a held-out set."""
        batch = held_out.of_site(len(self.sites) - 1)
        if len(batch) < FEWEST:
            return ScanLimits(inside=None, outside=None, pattern=None)
        reference = scan_checks.Reference.of(batch.fc.numpy())
        everybody = self.site.learning(with_val=True).fc.numpy()
        return ScanLimits(**scan_checks.limits(reference, everybody))


def counts_of(site: Site, target: Target) -> StepCounts:
    """Subjects per split and class, small cells suppressed. No totals: they would undo it.

    Of a number none are said.
    """

    def counted(y: Tensor) -> SplitCounts:
        if not target.classes:
            return SplitCounts(controls=None, patients=None)
        return SplitCounts(
            controls=suppressed(int((y == 0).sum())),
            patients=suppressed(int((y > 0).sum())),
        )

    learning = counted(site.learning(with_val=True).y)
    return StepCounts(learning=learning, test=counted(site.test.y))


def suppressed(count: int) -> int | None:
    """A count of subjects, or None where it is positive and below `SMALL_CELL`.

    Examples
    --------
    >>> suppressed(34), suppressed(3), suppressed(0)
    (34, None, 0)
    """
    return None if 0 < count < SMALL_CELL else count


def published_share(share: float, counts: Sequence[int | None]) -> float | None:
    """A share of some people, rounded so that it gives away no count that was suppressed.

    From 13 controls, fewer than 10 patients and an accuracy of 0.6500 follow 7 patients. The share
    is rounded to the finest step at which every count that could be behind a suppressed one
    still fits; None where there is no such step.

    Parameters
    ----------
    share : float
        Between 0 and 1.
    counts : sequence of int or None
        People per class as they are published.

    Examples
    --------
    >>> published_share(13 / 20, (13, 7)), published_share(0.7512345, (413, 387))
    (0.65, 0.75)
    >>> published_share(13 / 20, (13, None))
    0.6
    """
    known = sum(n for n in counts if n is not None)
    hidden = sum(n is None for n in counts)
    totals = range(known + hidden, known + hidden * (SMALL_CELL - 1) + 1)
    for step in STEPS_OF_SHARES:
        said = round(share / step)
        if all(any(round(k / n / step) == said for k in range(n + 1)) for n in totals):
            return round(said * step, 2)
    return None


# -- who is learned --------------------------------------------------------------------------------
def whole_site(people: Cohort, settings: ChainSettings) -> Site:
    """A site that is all training.

    A validation part is cut only where one is used; nobody's id is kept.
    """
    (name,) = people.site_names
    val = np.zeros(len(people), dtype=bool)
    if not settings.learns_val or settings.calibrate == "inner_val":
        rng = randomness.numpy_rng(settings.seed, "split", name)
        groups = strata(people.y)
        for label in np.unique(groups):
            members = rng.permutation(np.flatnonzero(groups == label))
            val[members[: max(1, round(settings.val_fraction * len(members)))]] = True
    masks = zip(SPLITS, (~val, val, val & ~val), strict=True)
    parts: dict[str, Any] = {
        part: FCBatch.from_numpy(people.fc[rows], people.y[rows])
        for part, rows in masks
    }
    return Site(name, **parts, subject_ids=dict.fromkeys(SPLITS, ()))


def people_learned(settings: ChainSettings, site: Site) -> People:
    """The subjects of a site that are trained on, in order."""
    learning = site.learning(with_val=settings.learns_val)
    parts = ("train", "val") if settings.learns_val else ("train",)
    ids = [who for part in parts for who in site.subject_ids[part]]
    return people_of(
        learning.fc.numpy(), ids or [""] * len(learning), learning.y.numpy()
    )
