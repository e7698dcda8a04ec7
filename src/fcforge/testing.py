"""Contract tests for continual-learning methods outside this repository.

A lane is one training run of a method: its network's parameters and its state. Subjects are rows of
one table, the bank.

Examples
--------
>>> from fcforge.methods.finetune import Finetune
>>> from fcforge.testing import check_method
>>> check_method(Finetune)  # doctest: +ELLIPSIS
finetune passes: 9 rules in ... s
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from inspect import get_annotations, unwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from traceback import walk_tb
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.base_model.features import log_features
from fcforge.base_model.model import fit_base_model
from fcforge.base_model.public_subjects import PublicSubjects
from fcforge.core.errors import FCForgeError
from fcforge.core.randomness import torch_rng
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.generators.cache import read_tensors, write_tensors
from fcforge.graphs import edges, fisher_z, log_edges
from fcforge.methods import METHODS
from fcforge.methods.base import Lane, Learner, Method
from fcforge.models import MODELS
from fcforge.models.base import Model
from fcforge.replay.bank import Bank, PoolName, PublicView, SiteView
from fcforge.replay.state import ABSENT, leaves, rows_of
from fcforge.training.initial_lanes import start_lane, untrained
from fcforge.training.lanes import Job, shapes
from fcforge.training.loop import learn_site

SITES = ("A", "B", "C")
N_ROIS = 8
N_SUBJECTS = 20
TRAINING = Training(epochs=3, batch_size=8)
COPY = 0.999  # numbers that correlate more than this with a subject's FC are a copy
FEWEST = 16  # exact values, other than 0 and 1, that show a copy in any order
OTHER_PRECISION = ("same dtype", "scalar type Double", "found Double")  # of PyTorch
# windows compared at once: their correlations stay in the processor's cache
AT_ONCE = 512
MOST = 0.9  # share of a subject's exact numbers that are a copy in any order
NEAR = 0.81  # likeness (difflib) from which on an unknown name is a misspelt one
PACKAGES = ("fcforge", "fcforge_consortium")
DESCRIPTIONS = {"name", "title", "source", "former_name", "keeps", "State"}


def check_method(
    method: type[Method],
    settings: Mapping[str, Any] | None = None,
    model: str | None = None,
) -> None:
    """Run the contract tests of continual-learning methods on a class.

    The class is taught three tiny sites with synthetic data; this takes up to half a minute. A class
    that passes is printed with the number of rules; no error means that it passed.

    Parameters
    ----------
    method : type
        Subclass of `fcforge.methods.base.Method`.
    settings : mapping, optional
        Settings other than the defaults.
    model : str, optional
        Name of the model to teach; by default the first of ``method.models``, or "linear".

    Raises
    ------
    AssertionError
        If the method breaks the contract. The message names the rule.
    Exception
        Any error of a hook's own code. A note below its message names the hook.

    Warns
    -----
    UserWarning
        If the class changes nothing: it then learns as the class that it derives from.

    Notes
    -----
    The rules: the class is a frozen dataclass with a name that no method of the package has, and with
    no public name that is nearly one of `Method`'s (`end_of_site`); scores are finite, of the right shape,
    and independent of the subjects scored together; the same run gives the same numbers; the state
    has the declared type and shapes that do not depend on the order of sites; a lane that was stored
    and read again continues with the same numbers; a lane trained in a group equals the lane
    trained alone; no lane is changed in place; bank rows are in fields of the type `Rows` alone; the
    bank stays as it is; the network has the tensors of the model; a method that keeps no real subject
    reads none of an earlier site (`past_sites_are_not_read`); and a method keeps no subject that it
    does not declare (`keeps_is_true` says which copies are found).

    A method that needs public subjects gets simulated ones. The model has the features that the
    method names. A method whose noise is secret is checked with seeded noise, because runs must repeat.
    """
    require(
        isinstance(method, type)
        and is_dataclass(method)
        and issubclass(method, Method),
        "the class must be a dataclass that derives from Method; give the class, not an object of it",
    )
    own = {key for key, kind in get_annotations(method).items() if _is_setting(kind)}
    require(
        not own or "__dataclass_params__" in vars(method),
        f"{', '.join(sorted(own))} would keep the values of the class above: decorate the class "
        "with @dataclass(frozen=True)",
    )
    require("name" in vars(method), "the class must have a name of its own")
    names_are_known(method)
    name = model or (method.models[0] if method.models else "linear")
    features: dict[str, Any] = {}
    if method.features and "features" in {each.name for each in fields(MODELS[name])}:
        features = {"features": method.features}
    network = MODELS[name](n_rois=N_ROIS, **features)
    learner = Learner(method(**dict(settings or {})), network)
    begin = perf_counter()
    for rule in RULES:
        _apply(rule, learner)
    _warn_if_nothing_is_changed(method)
    print(f"{method.name} passes: {len(RULES)} rules in {perf_counter() - begin:.1f} s")


def names_are_known(method: type[Method]) -> None:
    """Check that no method of the package has the name, and that no hook is misspelt.

    Hooks are called by name, so that a misspelt one would never be called. A function is compared with
    those of `Method`, another value with its class attributes of the same type. Settings may have any
    name.
    """
    known = METHODS.get(method.name)
    require(
        known is None or known is method or not _is_of_package(known),
        f"the name '{method.name}' is that of a method of fcforge, {known and known.__name__}: "
        "choose another",
    )
    ours = {
        name for each in method.__mro__ if _is_of_package(each) for name in vars(each)
    }
    settings = {each.name for each in fields(method)}
    for owner, name, value in _own_members(method):
        if name in ours | settings or name.startswith("_"):
            continue
        near = get_close_matches(name, _alternatives(value), n=1, cutoff=NEAR)
        require(
            not near,
            f"{owner.__name__}.{name} is never called or read by the engine: did you mean {near and near[0]}? "
            f"Rename it, or call a helper _{name}",
        )


def _alternatives(value: Any) -> list[str]:
    """Return the public names of `Method` that a member with this value may have been meant to have."""
    public = [name for name in dir(Method) if not name.startswith("_")]
    if _is_code(value):
        return [name for name in public if _is_code(getattr(Method, name))]
    return [name for name in public if type(getattr(Method, name)) is type(value)]


def _is_code(value: Any) -> bool:
    """Return whether a member of a class is a function or a property, not a class or another value."""
    wrapped = isinstance(value, property | classmethod | staticmethod)
    return wrapped or (callable(value) and not isinstance(value, type))


def _is_of_package(cls: type) -> bool:
    """Return whether a class is defined in fcforge or in Python itself."""
    return cls is object or cls.__module__.partition(".")[0] in (*PACKAGES, "abc")


def _own_members(method: type[Method]) -> Iterator[tuple[type, str, Any]]:
    """Yield class, name and value of all that classes outside fcforge define."""
    for cls in method.__mro__:
        if not _is_of_package(cls):
            for name, value in vars(cls).items():
                if not (name.startswith("__") or name == "_abc_impl"):
                    yield cls, name, value


def _warn_if_nothing_is_changed(method: type[Method]) -> None:
    """Warn if a class adds no setting and overrides no more than its description."""
    base = next(each for each in method.__mro__ if _is_of_package(each))
    added = {each.name for each in fields(method)} - {
        each.name for each in fields(base)
    }
    changed = {
        name for _, name, _ in _own_members(method) if hasattr(base, name)
    } - DESCRIPTIONS
    if base is not method and not added | changed:
        title = vars(base).get("title", base.__name__)
        warnings.warn(
            f"{method.__name__} overrides no hook of {base.__name__} and adds no setting: it learns as "
            f"{title}.",
            stacklevel=3,
        )


def _own_code(method: type[Method]) -> dict[CodeType, str]:
    """Return the hooks' names by the code of the functions that classes outside fcforge define."""
    codes = {}
    for owner, name, value in _own_members(method):
        function = value.fget if isinstance(value, property) else value
        code = (
            getattr(unwrap(function), "__code__", None) if callable(function) else None
        )
        if code is not None:
            codes[code] = f"{owner.__name__}.{name}"
    return codes


def _hook_of(error: BaseException, method: type[Method]) -> str:
    """Return the class's own function that the engine called when the error arose; "" for none."""
    codes = _own_code(method)
    frames = (frame.f_code for frame, _ in walk_tb(error.__traceback__))
    return next((codes[code] for code in frames if code in codes), "")


def _apply(rule: Callable[[Learner], None], learner: Learner) -> None:
    """Apply a rule; an error that arises in a function of the class gets a note that names it."""
    try:
        _apply_and_explain(rule, learner)
    except Exception as error:
        source = error.__cause__ or error
        if hook := _hook_of(source, type(learner.method)):
            error.add_note(f"The error arose in {hook}, in the rule {rule.__name__}.")
        raise


def _apply_and_explain(rule: Callable[[Learner], None], learner: Learner) -> None:
    """Apply a rule; name the broken one where fcforge, PyTorch or Python stops a hook before."""
    try:
        rule(learner)
    except FCForgeError as error:
        raise AssertionError(f"the engine stops the method: {error}") from error
    except RuntimeError as error:
        if any(words in str(error) for words in OTHER_PRECISION):
            raise AssertionError(
                "real numbers that a hook returns must have the precision of those that it gets, since the "
                f"check also trains in double precision (PyTorch: {error})."
            ) from error
        if "vmap" not in str(error):
            raise
        raise AssertionError(
            "hooks that are lifted must not branch on values of tensors or turn them into numbers, since "
            f"torch.vmap trains all lanes at once: use torch.where (PyTorch: {error})."
        ) from error
    except (AttributeError, TypeError) as error:
        if _hook_of(error, type(learner.method)):
            raise  # a mistake inside the hook
        raise AssertionError(
            f"every hook must take the arguments and return the types that Method declares ({error})."
        ) from error


def _is_setting(annotation: Any) -> bool:
    """Return whether an annotation of a class is that of a field, not of a class attribute."""
    return "ClassVar" not in str(annotation)


def require(condition: bool, rule: str) -> None:
    """Raise `AssertionError` with the rule if the condition is false."""
    if not condition:
        raise AssertionError(f"{rule}.")


# -- a small world -------------------------------------------------------------------------------
def subjects(site: str, kind: str) -> FCBatch:
    """Return simulated subjects of a site; patients have stronger FC among the first half of the ROIs.

    Parameters
    ----------
    site, kind : str
        Names from which the seed is derived: other subjects for every site and kind ("real", "synthetic",
        "test").
    """
    rng = torch_rng(0, site, kind)
    y = (torch.arange(N_SUBJECTS) % 5 > 2).long()
    common = torch.randn(N_SUBJECTS, 1, 30, generator=rng)
    series = torch.randn(N_SUBJECTS, N_ROIS, 30, generator=rng)
    series[:, : N_ROIS // 2] += common * (0.4 + 0.8 * y[:, None, None])
    return FCBatch(torch.stack([torch.corrcoef(one) for one in series]), y)


@dataclass
class World:
    """A simulated world: a bank with the subjects of its sites, in single or double precision.

    Attributes
    ----------
    dtype : torch.dtype
    bank : Bank
    replaced : tuple of str
        Sites that have other real subjects than in other worlds, in the same rows.
    added : dict of PoolName to FCBatch
        All subjects that the world itself has put into the bank.
    public : PublicView or None
        Public subjects, from the first lane of a method on that needs them.
    """

    dtype: torch.dtype = torch.float32
    bank: Bank = field(default_factory=Bank)
    replaced: tuple[str, ...] = ()
    added: dict[PoolName, FCBatch] = field(default_factory=dict)
    public: PublicView | None = None

    def add(self, site: str, kind: str, batch: FCBatch) -> Tensor:
        """Put subjects of a site into the bank and return their rows.

        `kind` is "real", "synthetic" or "public".
        """
        # the number is in the name, because the bank keeps the first batch of a name
        pool = PoolName(kind, site, 0, f"train:{len(batch)}")
        copy = FCBatch(batch.fc.to(self.dtype, copy=True), batch.y.clone())
        self.added.setdefault(pool, copy)
        return self.bank.add(pool, FCBatch(batch.fc.to(self.dtype), batch.y))

    def bank_is_unchanged(self, model: Model) -> bool:
        """Return whether the bank holds what the world has put into it, and nothing else."""
        fresh = Bank()
        for pool, batch in self.added.items():
            fresh.add(pool, batch)
        pools, expected = (
            bank.address(torch.arange(len(bank)))[0] for bank in (self.bank, fresh)
        )
        if pools != expected or not torch.equal(self.bank.y, fresh.y):
            return False
        rows = torch.arange(len(fresh))
        held, inputs = self.bank.inputs(model), fresh.inputs(model)
        return torch.equal(self.bank.fc(rows), fresh.fc(rows)) and all(
            _close(value, held[name]) for name, value in inputs.items()
        )

    def view(self, site: str, position: int) -> SiteView:
        """Return what a method sees of the site at a position of the order; its generator is simulated."""

        def synthesise(n: int) -> Tensor:
            """Return the rows of n subjects: simulated ones repeated, their edges weakened by up to 10 %."""
            batch = subjects(site, "synthetic")
            repeated = torch.arange(n) % len(batch)
            factor = torch.linspace(0.9, 1.0, n)[:, None, None]
            ones = torch.eye(N_ROIS) * (1 - factor)  # keeps the diagonal at 1
            fc = batch.fc[repeated] * factor + ones
            return self.add(site, "synthetic", FCBatch(fc, batch.y[repeated]))

        kind = "replaced" if site in self.replaced else "real"
        rows = self.add(site, "real", subjects(site, kind))
        public = self.public
        return SiteView(
            site, position, self.bank, rows, rows[:0], synthesise, public=public
        )

    def start(self, learner: Learner, seed: int = 0) -> Lane:
        """Return the lane before the first site, with at least the world's precision."""
        if learner.method.needs_public and self.public is None:
            batch = subjects("(public)", "public")
            fc, y = batch.fc.double().numpy(), batch.y.numpy()
            base_model = fit_base_model(log_features(fc), y)
            site = np.full(len(y), "(public)")
            public = PublicSubjects(fc, y, site, base_model)
            rows = self.add("(public)", "public", batch)
            self.public = PublicView(public, self.bank, rows)

        def cast(value: Tensor) -> Tensor:
            """Return a tensor with at least the world's precision, if it holds real numbers."""
            dtype = torch.promote_types(value.dtype, self.dtype)
            return value.to(dtype) if value.is_floating_point() else value

        lane = start_lane(learner, seed, public=self.public)
        return pytree.tree_map(cast, lane)

    def teach(
        self,
        learner: Learner,
        lanes: list[Lane],
        order: tuple[str, ...],
        seeds: tuple[int, ...] = (0,),
    ) -> list[Lane]:
        """Train lanes on the last site of an order, all in one group.

        Parameters
        ----------
        learner : Learner
        lanes : list of Lane
            Lanes that have learned the other sites of the order.
        order : tuple of str
        seeds : tuple of int
            Seed of each lane.
        """
        position = len(order) - 1
        jobs = [
            Job(lane, self.view(order[-1], position), seed, order)
            for lane, seed in zip(lanes, seeds, strict=True)
        ]
        return learn_site(learner, jobs, self.bank, TRAINING)

    def lane_after(
        self, learner: Learner, order: tuple[str, ...], seed: int = 0
    ) -> Lane:
        """Train a new lane on all sites of an order and return it."""
        lane = self.start(learner, seed)
        for i in range(len(order)):
            (lane,) = self.teach(learner, [lane], order[: i + 1], (seed,))
        return lane


def same(a: Lane, b: Lane, tolerance: float = 0.0) -> bool:
    """Return whether two lanes have equal tensors, up to a tolerance for real numbers."""
    first, second = a.named(), b.named()
    if first.keys() != second.keys():
        return False
    for name, value in first.items():
        allowed = tolerance if value.is_floating_point() else 0.0
        other = second[name]
        if value.shape != other.shape:
            return False
        if not torch.allclose(value, other, rtol=allowed, atol=allowed, equal_nan=True):
            return False
    return True


# -- the rules -----------------------------------------------------------------------------------
def scores_are_finite(learner: Learner) -> None:
    """Check shape and finiteness of the scores, and that subjects are scored one by one."""
    world = World()
    lane = world.lane_after(learner, SITES)
    inputs = learner.model.prepare(subjects("new", "test").fc)
    with torch.no_grad():
        logits = learner.method.logits(learner.model, lane, inputs)
        half = {k: v[: N_SUBJECTS // 2] for k, v in inputs.items()}
        logits_of_half = learner.method.logits(learner.model, lane, half)
    expected = (N_SUBJECTS, learner.model.n_outputs)
    require(
        tuple(logits.shape) == expected, "logits must have the shape (n, n_outputs)"
    )
    require(bool(torch.isfinite(logits).all()), "scores must be finite")
    require(
        torch.allclose(logits_of_half, logits[: len(logits_of_half)], atol=1e-5),
        "the score of a subject must not depend on the others that are scored with it",
    )


def runs_repeat(learner: Learner) -> None:
    """Check that the same run gives the same numbers."""
    a, b = (World().lane_after(learner, SITES) for _ in range(2))
    require(
        same(a, b),
        "two equal runs must give equal numbers: draw from the key that a hook gets, or from "
        "site.rng in end_site",
    )


def state_is_typed(learner: Learner) -> None:
    """Check the type of the state, and that its shapes do not depend on the order of sites."""
    world = World()
    a = world.lane_after(learner, ("A", "B"))
    b = world.lane_after(learner, ("C", "A"))
    declared = learner.method.State
    require(
        isinstance(a.state, declared)
        and isinstance(world.start(learner).state, declared),
        f"lane.state must be a {declared.__name__}, the class's State, from start on",
    )
    require(
        shapes(a) == shapes(b),
        "shapes of the state must depend on the number of sites, not on their order",
    )


def state_is_stored(learner: Learner) -> None:
    """Check that a lane that was stored and read again continues with the same numbers.

    In double precision: a stored lane has its parameters in another order, and sums over them are
    rounded differently.
    """
    stored = World().lane_after(learner, SITES[:1])  # in the precision of runs
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lane.safetensors"
        try:
            write_tensors(path, stored.named())
        except (KeyError, ValueError, RuntimeError, SafetensorError) as error:
            raise AssertionError(
                f"a state must hold tensors that a file can hold (safetensors: {error})."
            ) from error
        again = Lane.from_named(read_tensors(path), learner.method.State)
    require(same(stored, again), "a state that was stored must be read as it was")
    world = World(torch.float64)
    lane = world.lane_after(learner, SITES[:2])
    read = Lane.from_named(dict(sorted(lane.named().items())), learner.method.State)
    (a,) = world.teach(learner, [lane], SITES)
    (b,) = world.teach(learner, [read], SITES)
    require(
        same(a, b, 1e-9), "a state that was stored must continue with the same numbers"
    )


def lanes_are_independent(learner: Learner) -> None:
    """Check that a lane in a group equals the lane alone, in double precision."""
    world = World(torch.float64)
    orders = (("A", "B", "C"), ("B", "A", "C"))
    before = [
        world.lane_after(learner, order[:2], seed) for seed, order in enumerate(orders)
    ]
    alone = [
        world.teach(learner, [lane], order, (seed,))[0]
        for seed, (lane, order) in enumerate(zip(before, orders, strict=True))
    ]
    jobs = [
        Job(lane, world.view("C", 2), seed, order)
        for seed, (lane, order) in enumerate(zip(before, orders, strict=True))
    ]
    together = learn_site(learner, jobs, world.bank, TRAINING)
    for lane_alone, lane_in_group in zip(alone, together, strict=True):
        require(
            same(lane_alone, lane_in_group, 1e-9),
            "a lane in a group must equal the lane alone: hooks that are lifted must be pure "
            "functions of their arguments",
        )


def lanes_are_not_changed(learner: Learner) -> None:
    """Check that no hook changes the lane that it is given."""
    world = World()
    lane = world.lane_after(learner, SITES[:2])
    before = pytree.tree_map(torch.clone, lane)
    world.teach(learner, [lane], SITES)
    require(same(lane, before), "hooks must return new lanes and change none in place")


def rows_are_marked(learner: Learner) -> None:
    """Check that bank rows are in fields of the type `Rows` alone.

    Two worlds number the same subjects differently. Nothing but marked rows may differ between them.
    """
    plain, shifted = World(), World()
    shifted.add("elsewhere", "real", subjects("elsewhere", "real"))
    a, b = (world.lane_after(learner, SITES[:2]) for world in (plain, shifted))
    marked = {f"state/{name}" for name in rows_of(a.state)}
    other = b.named()
    for name, value in a.named().items():
        require(
            name in marked or _close(value, other[name]),
            f"{name} depends on the numbers of the bank's rows: keep rows in fields of the type Rows, "
            "which stores replace by addresses",
        )


def past_sites_are_not_read(learner: Learner) -> None:
    """Check that a method that keeps no real subject does not read those of earlier sites.

    Every site after the first is learned twice from one lane: beside the real subjects of the earlier
    sites, and beside others in their rows. Between the two times the method learns the others, and a
    site of another name. So subjects that it keeps outside the lane (in a global variable, a closure
    or an attribute of its own) are not the same either, unless it picks them by site and never
    replaces them. Sites after the third are not looked at.
    """
    if learner.method.keeps == "real subjects":
        return
    world = World()
    lanes = [world.start(learner)]
    for n in range(1, len(SITES) + 1):
        lanes += world.teach(learner, lanes[-1:], SITES[:n])
    World().lane_after(learner, ("elsewhere",))
    for n in range(1, len(SITES)):
        changed = World(replaced=SITES[:n])
        changed.lane_after(learner, SITES[:n])  # gives both banks the same rows
        (other,) = changed.teach(learner, [lanes[n]], SITES[: n + 1])
        require(
            same(lanes[n + 1], other, 1e-6),
            f"keeps is '{learner.method.keeps}', but what is learned at a site depends on the real "
            "subjects of the sites before: index inputs of the bank by rows of the state alone, and "
            "keep nothing outside the lane",
        )


def _close(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are equal, real numbers up to rounding."""
    if a.shape != b.shape:
        return False
    allowed = 1e-6 if a.is_floating_point() else 0.0
    return torch.allclose(a, b, rtol=allowed, atol=allowed, equal_nan=True)


def keeps_is_true(learner: Learner) -> None:
    """Check that a lane holds no subject that the method does not declare in `Method.keeps`.

    The network must have the tensors of the model and no others, and the bank must hold what the
    engine has put there. A state that keeps "nothing" may hold only bank rows and what anybody can
    compute again (both are marked). Any other state than one of real subjects may hold neither their
    bank rows nor a copy of their FC.

    **A copy that is found** is in one tensor of the state or of the network, in successive numbers along
    any axis, or in the state's tensors one after another; the tensors may hold floating-point numbers,
    integers, or integers whose bits are floating-point numbers. It has all numbers of a subject in one
    of these forms, whatever their scale, offset and rounding, as long as it correlates with the form
    by more than 0.999:

    - the whole FC matrix; its edges, row by row or column by column; Fisher z of these;
    - edges of the matrix logarithm;
    - inputs of the model, if they are at least as many as the edges;
    - these, but not column by column, less the mean of all subjects or of the subject's site, also
      divided by their standard deviation (z-scores).

    In another order, or with up to a tenth of the numbers missing, a copy is found only as exact float32
    numbers of one of the forms without mean and standard deviation; signs do not matter.

    **Not found** are a part of a subject, such as some ROIs or fewer than nine tenths of the edges;
    other functions of each edge (squares, exponentials) or of the matrix (its inverse, its Cholesky
    factor, its eigenvectors); numbers in another order that are scaled or rounded; scaled numbers that
    are divided among tensors with others between them; sums and means of few subjects, and
    differences from other references than these means; and what is encrypted, compressed, noisy or
    hidden on purpose.
    """
    method = learner.method
    world = World()
    lane = world.lane_after(learner, SITES)
    require(
        world.bank_is_unchanged(learner.model),
        "the bank must stay as it is: methods get synthetic subjects from site.synthetic and change "
        "nothing in the bank",
    )
    network, own = (
        {
            (name, tuple(value.shape))
            for name, value in each._replace(state=ABSENT).named().items()
        }
        for each in (lane, untrained(learner.model, 0))
    )
    others = ", ".join(sorted({name for name, _ in network ^ own}))
    require(
        not others,
        f"the network must have the tensors of the model, which is not so for {others}: keep what the "
        "method remembers in lane.state",
    )
    if method.keeps == "nothing":
        held = [leaf.name for leaf in leaves(lane.state) if not leaf.marks]
        require(
            not held,
            f"keeps is 'nothing', but the state has {', '.join(held)}: declare keeps = 'statistics', or "
            "'real subjects' or 'synthetic subjects' where they are of single subjects",
        )
    if method.keeps == "real subjects":
        return
    for name, rows in rows_of(lane.state).items():
        real = world.bank.real_rows(rows)
        require(not len(real), f"the state has rows of real subjects in {name}")
    forms = Forms.of(learner, torch.cat([subjects(site, "real").fc for site in SITES]))
    state = {leaf.name: leaf.value for leaf in leaves(lane.state)}
    tensors = {f"{name} of the state": value for name, value in state.items()}
    for name, value in lane._replace(state=ABSENT).named().items():
        tensors[f"{name} of the network"] = value
    message = "there is a copy of a real subject in {}; declare keeps = 'real subjects'"
    for place, value in tensors.items():
        require(not _has_copy(value, forms), message.format(place))
    require(
        not _tensors_hold([*state.values()], forms),
        message.format("several tensors of the state"),
    )


class Forms(NamedTuple):
    """Forms in which n subjects could be kept.

    Attributes
    ----------
    plain : list of Tensor of shape (n, d), float64
        Forms that are also looked for in another order.
    unit : dict of int to Tensor of shape (d, m), float32
        By their number of numbers d: subjects in all forms, as columns with mean 0 and length 1.
    """

    plain: list[Tensor]
    unit: dict[int, Tensor]

    @classmethod
    def of(cls, learner: Learner, fc: Tensor) -> "Forms":
        """Return the forms of subjects with FC (n, R, R), which are ordered by site.

        Inputs of a model that are fewer than edges are a summary of a subject, which an importance of
        weights may resemble.
        """
        rows, columns = torch.tril_indices(N_ROIS, N_ROIS, -1)
        upper, lower, log = edges(fc), fc[:, rows, columns], log_edges(fc)
        prepared = learner.model.prepare(fc).values()
        inputs = [value for value in prepared if value.is_floating_point()]
        plain = _flat(
            [upper, fisher_z(upper), lower, fisher_z(lower), fc, log, *inputs]
        )
        forms = list(plain)
        for form in _flat([fc, upper, fisher_z(upper), log, *inputs]):
            for sites in (1, len(SITES)):
                forms += _standardised(form, sites)
        unit: dict[int, Tensor] = {}
        for d in {form.shape[1] for form in forms}:
            every = torch.cat([form for form in forms if form.shape[1] == d])
            unit[d] = _unit(every).float().T.contiguous()
        return cls(plain, unit)


def _flat(forms: list[Tensor]) -> list[Tensor]:
    """Return the forms (n, d), float64, that have at least as many numbers as edges."""
    flat = [form.double().flatten(1) for form in forms]
    return [form for form in flat if form.shape[1] >= N_ROIS * (N_ROIS - 1) // 2]


def _standardised(form: Tensor, sites: int) -> list[Tensor]:
    """Return subjects (n, d) less the mean of their site, and z-scores within it.

    Parameters
    ----------
    form : Tensor of shape (n, d), float64
    sites : int
        Number of sites; the subjects are ordered by site, equally many at each.
    """
    by_site = form.unflatten(0, (sites, -1))
    centred = by_site - by_site.mean(1, keepdim=True)
    spread = by_site.std(1, keepdim=True).clamp_min(1e-6)
    return [centred.flatten(0, 1), (centred / spread).flatten(0, 1)]


def _unit(x: Tensor) -> Tensor:
    """Return rows with mean 0 and length 1, whose products are correlations."""
    x = x - x.mean(1, keepdim=True)
    return x / x.norm(dim=1, keepdim=True).clamp_min(1e-12)


def _numbers(value: Tensor) -> list[Tensor]:
    """Return the numbers (m,), float64, that a tensor holds: its own, and those that its bits encode.

    Numbers that are not finite become 0, since one would hide its neighbours.
    """
    if value.is_complex():
        value = torch.view_as_real(value)
    numbers = [value.double().flatten()]
    if not value.is_floating_point() and value.dtype != torch.bool:
        bits = value.contiguous().flatten().view(torch.uint8)
        for kind in (torch.float16, torch.float32, torch.float64):
            whole = len(bits) // kind.itemsize * kind.itemsize
            numbers.append(bits[:whole].view(kind).double())
    return [torch.nan_to_num(each, 0.0, 0.0, 0.0) for each in numbers]


def _has_copy(value: Tensor, forms: Forms) -> bool:
    """Return whether a tensor holds a copy of a subject in one of several forms."""
    axes = tuple(range(value.dim()))
    layouts = {axes}
    for axis in axes:
        others = axes[:axis] + axes[axis + 1 :]
        layouts |= {(axis, *others), (*others, axis)}
    for layout in layouts:
        if any(_holds(numbers, forms) for numbers in _numbers(value.permute(layout))):
            return True
    exact = value.dtype not in (torch.float16, torch.bfloat16)  # their numbers recur
    return exact and any(
        _holds_in_any_order(numbers, form)
        for numbers in _numbers(value)
        for form in forms.plain
    )


def _tensors_hold(tensors: list[Tensor], forms: Forms) -> bool:
    """Return whether a copy of a subject is divided among tensors, of which none holds it alone.

    Only numbers on both sides of an end of a tensor can be such a copy in successive numbers.
    """
    if len(tensors) < 2:
        return False
    numbers = [_numbers(tensor)[0] for tensor in tensors]
    whole = torch.cat(numbers)
    reach = max(forms.unit) - 1
    ends = np.cumsum([len(each) for each in numbers[:-1]]).tolist()
    return any(
        _holds(whole[max(end - reach, 0) : end + reach], forms) for end in ends
    ) or any(_holds_in_any_order(whole, form) for form in forms.plain)


def _holds(numbers: Tensor, forms: Forms) -> bool:
    """Return whether some successive ones of the numbers (m,), float64, are a copy of a subject.

    A copy correlates with one of the forms by more than `COPY`, whatever its scale and sign.
    """
    for d, unit in forms.unit.items():
        if len(numbers) < d:
            continue
        for windows in numbers.unfold(0, d, 1).split(AT_ONCE):
            # NaN, where the sum of a window overflows, would hide the other windows
            correlations = _unit(windows).float().nan_to_num_(0.0, 0.0, 0.0) @ unit
            lowest, highest = torch.aminmax(correlations)
            if max(-float(lowest), float(highest)) > COPY:
                return True
    return False


def _holds_in_any_order(numbers: Tensor, features: Tensor) -> bool:
    """Return whether most features of one of n subjects are among some numbers, whatever their sign.

    They are compared as float32. Features that are 0 or 1 are left out, because they are everywhere.

    Parameters
    ----------
    numbers : Tensor of shape (m,), float64
    features : Tensor of shape (n, d), float64
    """
    rounded = features.abs().float()
    telling = (rounded > 1e-6) & ((rounded - 1).abs() > 1e-6)
    found = torch.isin(rounded, numbers.abs().float()) & telling
    n_telling = telling.sum(1)
    return bool(((found.sum(1) >= MOST * n_telling) & (n_telling >= FEWEST)).any())


RULES: tuple[Callable[[Learner], None], ...] = (
    scores_are_finite,
    state_is_typed,
    lanes_are_not_changed,
    runs_repeat,
    state_is_stored,
    lanes_are_independent,
    past_sites_are_not_read,
    rows_are_marked,
    keeps_is_true,
)
