"""The contract tests for methods of others: they pass for good methods and name what is wrong."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import fcforge.testing as testing
from fcforge.core.subjects import FCBatch
from fcforge.graphs import edges, fisher_z, log_edges
from fcforge.methods import METHODS, Method
from fcforge.methods.base import Learner
from fcforge.models import MODELS
from fcforge.replay.bank import PoolName
from fcforge.replay.state import Rows
from fcforge.testing import World, check_method, subjects

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from agem import AGEM
from generative_replay import GenerativeReplay
from mas import MAS

SETTINGS = {
    "contributions": {"noise": "seeded"},  # secret noise is drawn anew in every run
    "forge": {"memory": 12, "candidates": 10, "dev": 6, "replay": 8, "refresh": 2},
    "forge_ridge": {"memory": 12, "candidates": 10, "dev": 6},
}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_of_the_package_pass(name):
    check_method(METHODS[name], SETTINGS.get(name))


def test_secret_noise_is_named_as_what_it_is():
    with pytest.raises(AssertionError, match="two equal runs must give equal numbers"):
        check_method(METHODS["contributions"])


def test_importance_of_weights_that_resembles_a_summary_is_no_copy():
    """TEM's 16 inputs of a subject show in the gradients of its weights."""
    check_method(METHODS["si"], model="tem")


def test_a_method_from_outside_passes_in_forty_lines():
    check_method(AGEM)
    check_method(AGEM, {"memory": 6, "replay": 4}, "mlp")
    text = (Path(__file__).parents[1] / "examples" / "agem.py").read_text()
    assert len(text.splitlines()) <= 40


def test_mas_reads_every_subject_and_pulls_to_the_anchor():
    from fcforge.methods.base import Batch

    check_method(MAS)
    text = (Path(__file__).parents[1] / "examples" / "mas.py").read_text()
    assert len(text.split("class MAS")[1].splitlines()) <= 40
    learner = Learner(MAS(strength=2.0), MODELS["linear"](n_rois=8))
    world = World(torch.float64)
    lane = world.lane_after(learner, ("A",))
    site = world.view("A", 0)
    # the logits are z = Wx + b: the derivative of their squared length by W is 2 z x
    inputs = site.inputs(learner.model)
    z = learner.model.apply(lane.params, lane.stats, inputs).logits
    bias = next(k for k in lane.params if k.endswith("bias"))
    expected = (2 * z).abs().mean(0)
    assert torch.allclose(lane.state.weight[bias], expected)
    moved = {k: v + 1.0 for k, v in lane.params.items()}
    key = torch.tensor(3, dtype=torch.int32)
    loss = learner.method.loss(learner.model, moved, lane, Batch(inputs, site.y), key)
    pull = 2.0 * sum(float(v.sum()) for v in lane.state.weight.values())
    assert float(loss.terms["pull"]) == pytest.approx(pull)
    assert float(loss.total) == pytest.approx(sum(map(float, loss.terms.values())))


@pytest.mark.parametrize("model", ["linear", "gcn"])
def test_generative_replay_keeps_and_replays_the_generators_subjects(model):
    from fcforge.methods.base import Batch, Learner, label_loss
    from fcforge.models import MODELS

    check_method(GenerativeReplay, {"n_synthetic": 12, "replay": 5}, model)
    text = (Path(__file__).parents[1] / "examples" / "generative_replay.py").read_text()
    assert len(text.split("class Gen")[1].splitlines()) <= 40
    method = GenerativeReplay(n_synthetic=12, replay=5)
    learner = Learner(method, MODELS[model](n_rois=8))
    world = World(torch.float64)
    lane = world.lane_after(learner, ("A", "B"))
    rows = lane.state.rows
    assert len(rows) == 24
    assert not len(world.bank.real_rows(rows))
    assert torch.equal(lane.state.y, world.bank.y[rows])
    site = world.view("C", 2)
    inputs = world.bank.inputs(learner.model)
    key = torch.tensor(3, dtype=torch.int32)
    replay = method.recall(lane, inputs, key)
    assert len(replay.y) == 5
    assert set(replay.rows.tolist()) <= set(rows.tolist())
    if model == "linear":  # without dropout and batch norm the loss is the mean of two
        batch = Batch(site.inputs(learner.model), site.y, replay)
        loss = method.loss(learner.model, lane.params, lane, batch, key)
        losses = [
            label_loss(learner.model.apply(lane.params, {}, x).logits, y)
            for x, y in ((batch.inputs, batch.y), (replay.inputs, replay.y))
        ]
        assert float(loss.total) == pytest.approx(float(sum(losses)) / 2, rel=1e-6)


def test_agem_projects_only_against_the_memory():
    """After the projection the gradient never points against that of the memory."""
    from fcforge.methods.base import Batch, label_loss

    learner = Learner(AGEM(memory=8, replay=4), MODELS["linear"](n_rois=8))
    world = World(torch.float64)
    lane = world.lane_after(learner, ("A",))
    inputs = world.bank.inputs(learner.model)
    world.view("B", 1)
    inputs = world.bank.inputs(learner.model)
    key = torch.tensor(3, dtype=torch.int32)
    replay = learner.method.recall(lane, inputs, key)
    batch = Batch({k: v[20:28] for k, v in inputs.items()}, world.bank.y[20:28], replay)

    def gradient(x, y, weight=None):
        def loss(params):
            return label_loss(learner.model.apply(params, {}, x).logits, y, weight)

        return torch.func.grad(loss)(lane.params)

    past = gradient(replay.inputs, replay.y, replay.weight)
    against = {k: -2.0 * v + 0.1 for k, v in past.items()}
    along = {k: 0.5 * v for k, v in past.items()}

    def product(grads):
        return float(sum((grads[k] * past[k]).sum() for k in past))

    def changed(grads):
        return learner.method.after_grad(learner.model, lane, grads, batch, key)

    assert product(against) < 0
    assert product(changed(against)) == pytest.approx(0.0, abs=1e-9)
    assert all(torch.equal(changed(along)[k], v) for k, v in along.items())


class Kept(NamedTuple):
    fc: Tensor


@dataclass(frozen=True)
class Hoarder(Method):
    """Keeps a subject's edges as a statistic."""

    name = "hoarder"
    keeps = "statistics"
    State = Kept

    def start(self, model, lane, public=None):
        return lane._replace(state=Kept(torch.zeros(28)))

    def end_site(self, model, lane, site):
        return lane._replace(state=Kept(3.0 * edges(site.fc)[0] + 1.0))


@dataclass(frozen=True)
class Archivist(Hoarder):
    """Keeps whole matrices and says that these are statistics."""

    name = "archivist"

    def end_site(self, model, lane, site):
        return lane._replace(state=Kept(site.fc.clone()))


class Two(NamedTuple):
    first: Tensor
    second: Tensor


class Three(NamedTuple):
    first: Tensor
    count: Tensor
    second: Tensor


def hoarder(encode, state=Kept, keeps_="statistics"):
    """Return a method whose state is what `encode` makes of a site's FC (n, R, R) and rows."""

    @dataclass(frozen=True)
    class Encoder(Method):
        name = "encoder"
        keeps = keeps_
        State = state

        def start(self, model, lane, public=None):
            nobody = torch.eye(8).expand(20, 8, 8)
            return self._state_of(lane, nobody, torch.arange(20))

        def end_site(self, model, lane, site):
            return self._state_of(lane, site.fc, site.rows)

        def _state_of(self, lane, fc, rows):
            values = encode(edges(fc), fc, rows)
            values = values if isinstance(values, tuple) else (values,)
            return lane._replace(state=state(*(value.clone() for value in values)))

    return Encoder


class Pinned(NamedTuple):
    anchor: dict[str, Tensor]


@dataclass(frozen=True)
class Pinner(Method):
    """Keeps the parameters themselves, without a copy."""

    name = "pinner"
    keeps = "statistics"
    State = Pinned

    def start(self, model, lane, public=None):
        return lane._replace(state=Pinned({}))

    def end_site(self, model, lane, site):
        return lane.with_state(anchor=dict(lane.params))


def test_a_state_may_share_memory_with_the_network():
    check_method(Pinner)


@dataclass(frozen=True)
class Silent(Pinner):
    """Does not say that it keeps an anchor."""

    name = "silent"
    keeps = "nothing"


def test_a_state_of_a_method_that_keeps_nothing_is_named_with_a_remedy():
    rule = "the state has anchor/.*: declare keeps = 'statistics', or 'real subjects'"
    with pytest.raises(AssertionError, match=rule):
        check_method(Silent)


@dataclass(frozen=True)
class Exotic(Pinner):
    """Keeps numbers of a type that no file holds."""

    name = "exotic"

    def end_site(self, model, lane, site):
        anchor = {k: v.to(torch.complex128) for k, v in lane.params.items()}
        return lane.with_state(anchor=anchor)


def test_a_state_that_no_file_can_hold_is_named():
    with pytest.raises(AssertionError, match="tensors that a file can hold"):
        check_method(Exotic)


def _standardised(x):
    """Return z-scores of a site's subjects (n, d), as a standardiser stores them."""
    return (x - x.mean(0)) / x.std(0).clamp_min(1e-9)


NAN = torch.full((1,), torch.nan)
SHUFFLED = torch.randperm(28, generator=torch.Generator().manual_seed(0))
HUGE = 1.7e308 * torch.ones(30, dtype=torch.float64)  # sums of these overflow
LONG_NOISE = torch.randn(2003, generator=torch.Generator().manual_seed(2))
NOISE = torch.randn(28, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "encode",
    [
        lambda x, fc, rows: x[0].half(),
        lambda x, fc, rows: x[:6].reshape(2, 3, 28).movedim(2, 0).contiguous(),
        lambda x, fc, rows: x[:6].reshape(2, 3, 28).movedim(2, 1).contiguous(),
        lambda x, fc, rows: (1e4 * x[0]).round().to(torch.int16),
        lambda x, fc, rows: x[0].view(torch.int32),
        lambda x, fc, rows: x[0].double().view(torch.int64),
        lambda x, fc, rows: x[0].half().view(torch.uint8),
        lambda x, fc, rows: torch.complex(x[0], x[1]),
        lambda x, fc, rows: x[0][SHUFFLED],
        lambda x, fc, rows: x[0].sort().values,
        lambda x, fc, rows: x[0].flip(0) * (1 - 2 * (SHUFFLED % 2)),
        lambda x, fc, rows: torch.stack([x[0], NOISE], 1).flatten(),
        lambda x, fc, rows: log_edges(fc)[0],
        lambda x, fc, rows: torch.cat([NAN, 3 * x[0] + 1]),
        lambda x, fc, rows: torch.cat([-torch.inf * torch.ones(1), 3 * x[0] + 1]),
        lambda x, fc, rows: torch.cat([x[:9], NAN.expand(11, 28)]).half(),
        lambda x, fc, rows: torch.cat([1.7e308 * torch.ones(30), 3 * x[0] + 1]),
        lambda x, fc, rows: torch.cat([HUGE, 3 * x[0].double() + 1]),
        lambda x, fc, rows: torch.cat([LONG_NOISE, 3 * x[0] + 1, LONG_NOISE]),
        lambda x, fc, rows: x - x.mean(0),
        lambda x, fc, rows: _standardised(x),
        lambda x, fc, rows: fc - fc.mean(0),
        lambda x, fc, rows: _standardised(fisher_z(x))[0],
        lambda x, fc, rows: _standardised(log_edges(fc))[5].half(),
    ],
)
def test_a_subject_in_another_form_is_found(encode):
    with pytest.raises(AssertionError, match="copy of a real subject in fc of the sta"):
        check_method(hoarder(encode))


def test_a_subject_in_two_tensors_is_found():
    with pytest.raises(AssertionError, match="in several tensors of the state"):
        check_method(hoarder(lambda x, fc, rows: (x[0, :14], x[0, 14:]), Two))


@pytest.mark.parametrize("first", [1, 14, 27])
def test_a_scaled_subject_across_the_end_of_long_tensors_is_found(first):
    def encode(x, fc, rows):
        scaled = 3 * x[0] + 1
        return torch.cat([LONG_NOISE, scaled[:first]]), torch.cat(
            [scaled[first:], LONG_NOISE]
        )

    with pytest.raises(AssertionError, match="in several tensors of the state"):
        check_method(hoarder(encode, Two))


def test_a_scaled_matrix_across_three_tensors_is_found():
    def encode(x, fc, rows):
        scaled = (3 * fc[0] + 1).flatten()
        ends = torch.cat([LONG_NOISE, scaled[:20]]), torch.cat([scaled[40:], NOISE])
        return ends[0], scaled[20:40], ends[1]

    with pytest.raises(AssertionError, match="in several tensors of the state"):
        check_method(hoarder(encode, Three))


def test_no_place_among_many_numbers_is_missed():
    """A copy is found wherever the windows that are compared at once begin."""
    learner = Learner(METHODS["finetune"](), MODELS["linear"](n_rois=8))
    fc = subjects("A", "real").fc
    forms = testing.Forms.of(learner, torch.cat([fc, fc, fc]))
    noise = LONG_NOISE.double()
    hidden = 3 * edges(fc)[0].double() + 1
    for place in range(testing.AT_ONCE - 30, testing.AT_ONCE + 2):
        numbers = noise.clone()
        numbers[place : place + 28] = hidden
        assert testing._holds(numbers, forms), place
    assert not testing._holds(noise, forms)


@pytest.mark.parametrize(
    "encode",
    [
        lambda x, fc, rows: rows[:3],
        lambda x, fc, rows: rows[:3].float() ** 2,
        lambda x, fc, rows: rows.sum().reshape(1),
    ],
)
def test_rows_under_the_name_of_statistics_are_found(encode):
    with pytest.raises(AssertionError, match="state/fc depends on the numbers of the"):
        check_method(hoarder(encode))


@pytest.mark.parametrize(
    "encode",
    [
        lambda x, fc, rows: x.mean(0),
        lambda x, fc, rows: x.std(0),
        lambda x, fc, rows: x.T @ x,
        lambda x, fc, rows: torch.tensor(len(rows)),
        lambda x, fc, rows: torch.arange(100),
        lambda x, fc, rows: torch.ones(200, dtype=torch.bool),
        lambda x, fc, rows: fc.mean(0),
    ],
)
def test_statistics_of_many_are_no_copy(encode):
    check_method(hoarder(encode))


@pytest.mark.parametrize(
    "encode",
    [
        lambda x, fc, rows: x[0].view(torch.int32) ^ 0x5A5A5A5A,
        lambda x, fc, rows: x[0] + 0.3 * NOISE,
        lambda x, fc, rows: x[:2].mean(0),
        lambda x, fc, rows: torch.linalg.eigh(fc[0]).eigenvectors,
        lambda x, fc, rows: 3 * x[0][SHUFFLED] + 1,
        lambda x, fc, rows: x[0][SHUFFLED].half(),
        lambda x, fc, rows: (1e4 * x[0][SHUFFLED]).round().to(torch.int16),
        lambda x, fc, rows: x[:, :25],
        lambda x, fc, rows: fc[:, :7, :7],
        lambda x, fc, rows: x.square(),
        lambda x, fc, rows: x.exp(),
        lambda x, fc, rows: torch.linalg.inv(fc + 0.01 * torch.eye(8)),
        lambda x, fc, rows: torch.linalg.cholesky(fc + 1e-4 * torch.eye(8)),
    ],
)
def test_encoded_subjects_are_beyond_the_check_as_the_documentation_says(encode):
    check_method(hoarder(encode))
    text = (Path(__file__).parents[1] / "docs/explained/pipeline.md").read_text()
    for words in (
        "some ROIs or fewer than nine tenths of the edges",
        "another function of each edge or of the matrix",
        "in another order, unless they are exact float32",
        "encrypted, compressed, noisy or hidden on purpose",
    ):
        assert words in text


def test_scaled_halves_with_a_tensor_between_are_beyond_the_check_exact_ones_are_not():
    def halves(x):
        return x[0, :14], torch.tensor(1.0), x[0, 14:]

    check_method(hoarder(lambda x, fc, rows: halves(3 * x + 1), Three))
    with pytest.raises(AssertionError, match="in several tensors of the state"):
        check_method(hoarder(lambda x, fc, rows: halves(x), Three))


SUBJECTS: dict[str, Tensor] = {}  # what a method could keep in a module


def hidden(subjects_of, keep):
    """Return a method that keeps subjects outside the lane and learns from those of other sites.

    Parameters
    ----------
    subjects_of : callable
        Returns the dictionary of subjects by site of the method, its argument.
    keep : callable
        Puts subjects into the dictionary: ``keep(dictionary, site)``.
    """

    @dataclass(frozen=True)
    class Hidden(Method):
        name = "hidden"

        def end_site(self, model, lane, site):
            memory = subjects_of(self)
            keep(memory, site)
            level = sum(fc.mean() for name, fc in memory.items() if name != site.name)
            params = {name: value + level for name, value in lane.params.items()}
            return lane._replace(params=params)

    return Hidden


def attribute(method):
    if not hasattr(method, "memory"):
        object.__setattr__(method, "memory", {})
    return method.memory


def keep_last(memory, site):
    memory[site.name] = site.fc.clone()


def keep_first(memory, site):
    memory.setdefault(site.name, site.fc.clone())


@pytest.mark.parametrize("keep", [keep_last, keep_first])
@pytest.mark.parametrize("place", ["global", "closure", "attribute"])
def test_subjects_outside_the_lane_are_found(place, keep):
    SUBJECTS.clear()
    enclosed: dict[str, Tensor] = {}
    memory = {
        "global": lambda method: SUBJECTS,
        "closure": lambda method: enclosed,
        "attribute": attribute,
    }[place]
    with pytest.raises(
        AssertionError, match="on the real subjects of the sites before"
    ):
        check_method(hidden(memory, keep))


@pytest.mark.parametrize(("position", "earlier"), [(1, 0), (2, 0), (2, 1)])
def test_reading_an_earlier_site_at_any_position_is_found(position, earlier):
    @dataclass(frozen=True)
    class Reads(Method):
        name = "reads"

        def end_site(self, model, lane, site):
            if site.position != position:
                return lane
            level = edges(site.bank.fc(torch.arange(20) + 20 * earlier)).mean()
            params = {name: value + level for name, value in lane.params.items()}
            return lane._replace(params=params)

    with pytest.raises(AssertionError, match="keep nothing outside the lane"):
        check_method(Reads)


class Memory(NamedTuple):
    rows: Rows


@dataclass(frozen=True)
class Launders(Method):
    """Puts real subjects into the bank as synthetic ones."""

    name = "launders"
    keeps = "synthetic subjects"
    State = Memory

    def start(self, model, lane, public=None):
        return lane._replace(state=Memory(torch.full((20,), -1)))

    def end_site(self, model, lane, site):
        return lane._replace(state=Memory(self.laundered(model, site)))

    def laundered(self, model, site):
        return site.bank.add(*self.pool(site))

    def pool(self, site):
        name = PoolName("synthetic", site.name, 0, "train:99")
        return name, FCBatch(site.fc, site.y)


@dataclass(frozen=True)
class OpensTheBank(Launders):
    """Opens the bank before it does the same."""

    name = "opens-the-bank"

    def laundered(self, model, site):
        with site.bank.closed(False):
            return site.bank.add(*self.pool(site))


@dataclass(frozen=True)
class ReplacesTheGenerator(Launders):
    """Has the engine add the subjects, under the name of those of the generator."""

    name = "replaces-the-generator"

    def laundered(self, model, site):
        def add(n):
            name, batch = self.pool(site)
            return site.bank.add(name._replace(part="train:20"), batch)

        site.synthesise = add
        return site.synthetic(20)


@dataclass(frozen=True)
class OverwritesSyntheticSubjects(Launders):
    """Writes real subjects over the inputs of synthetic ones."""

    name = "overwrites-synthetic-subjects"

    def laundered(self, model, site):
        rows = site.synthetic(20)
        site.bank.inputs(model)["edges"][rows] = site.inputs(model)["edges"]
        return rows


@dataclass(frozen=True)
class KeepsAStatistic(Method):
    """Keeps a statistic beside those of batch norm."""

    name = "keeps-a-statistic"

    def end_site(self, model, lane, site):
        return lane._replace(stats={**lane.stats, "memory": site.fc.mean(0)})


@dataclass(frozen=True)
class AddsAParameter(Method):
    """Has a parameter more than the model, from the start."""

    name = "adds-a-parameter"

    def start(self, model, lane, public=None):
        return lane._replace(params={**lane.params, "memory": torch.zeros(20, 28)})


@dataclass(frozen=True)
class RoundsToSingle(Method):
    """Returns parameters in single precision, whatever it gets."""

    name = "rounds-to-single"

    def begin_site(self, model, lane, site):
        return lane._replace(params={k: v.float() for k, v in lane.params.items()})


@dataclass(frozen=True)
class WritesIntoTheNetwork(Method):
    """Overwrites weights with a subject's edges."""

    name = "writes-into-the-network"

    def end_site(self, model, lane, site):
        weight = lane.params["head.0.weight"].clone()
        weight.view(-1)[:28] = edges(site.fc)[0]
        return lane._replace(params={**lane.params, "head.0.weight": weight})


@dataclass(frozen=True)
class ReadsTheBank(Method):
    """Reads subjects of the first site while it learns the second."""

    name = "reads-the-bank"

    def end_site(self, model, lane, site):
        level = edges(site.bank.fc(torch.arange(20))).mean() if site.position else 0.0
        params = {name: value + level for name, value in lane.params.items()}
        return lane._replace(params=params)


class Undecorated(AGEM):
    """Has a setting, which only the decorator would make one."""

    name = "undecorated"
    memory: int = 3


@dataclass(frozen=True)
class Restless(Method):
    """Draws from the global generator."""

    name = "restless"

    def end_site(self, model, lane, site):
        noise = {k: v + 0.1 * torch.randn(v.shape) for k, v in lane.params.items()}
        return lane._replace(params=noise)


@dataclass(frozen=True)
class Meddler(Method):
    """Changes the lane that it is given."""

    name = "meddler"

    def begin_site(self, model, lane, site):
        for value in lane.params.values():
            value += 1.0
        return lane


@dataclass(frozen=True)
class Untyped(Method):
    """Has a state of another type than it declares."""

    name = "untyped"
    keeps = "statistics"
    State = Kept


@dataclass(frozen=True)
class Nameless(Method):
    """Has no name."""


@pytest.mark.parametrize(
    ("method", "rule"),
    [
        (Hoarder, "copy of a real subject in fc"),
        (Archivist, "copy of a real subject in fc"),
        (WritesIntoTheNetwork, "copy of a real subject in params/head.0.weight of the"),
        (ReadsTheBank, "keeps is 'nothing', but what is learned at a site depends on"),
        (Undecorated, "memory would keep .* decorate the class"),
        (AGEM(), "give the class, not an object"),
        (Restless, "two equal runs"),
        (Meddler, "change none in place"),
        (Untyped, "must be a Kept"),
        (Nameless, "a name of its own"),
        (
            Launders,
            "engine stops the method: site 'A': a method adds 20 subjects to th",
        ),
        (
            OpensTheBank,
            "the bank must stay as it is: methods get synthetic subjects from",
        ),
        (ReplacesTheGenerator, "the bank must stay as it is"),
        (OverwritesSyntheticSubjects, "the bank must stay as it is"),
        (
            KeepsAStatistic,
            "which is not so for stats/memory: keep what the method remem",
        ),
        (AddsAParameter, "which is not so for params/memory"),
        (RoundsToSingle, "must have the precision of those that it gets"),
    ],
)
def test_a_broken_method_is_told_which_rule_it_breaks(method, rule):
    with pytest.raises(AssertionError, match=rule):
        check_method(method)


def test_the_small_world_has_a_class_effect():
    batch = subjects("A", "real")
    block = batch.fc[:, :4, :4].mean((1, 2))
    assert float(block[batch.y == 1].mean()) > float(block[batch.y == 0].mean()) + 0.1


@dataclass(frozen=True)
class Branches(Method):
    """Branches on the values of a tensor."""

    name = "branches"

    def loss(self, model, params, lane, batch, key):
        if next(iter(params.values())).sum() > 0:
            return super().loss(model, params, lane, batch, key)
        return super().loss(model, params, lane, batch, key)


@dataclass(frozen=True)
class ForgetsAnArgument(Method):
    """Has an `end_site` of another signature."""

    name = "forgets-an-argument"

    def end_site(self, model, lane):
        return lane


def test_errors_of_python_and_of_vmap_name_the_rule():
    with pytest.raises(AssertionError, match="must not branch on values of tensors"):
        check_method(Branches)
    with pytest.raises(AssertionError, match="must take the arguments"):
        check_method(ForgetsAnArgument)


def with_members(base=Method, **members):
    """Return a method class with these members."""
    members = {"name": "with-members", "__module__": __name__, **members}
    return dataclass(frozen=True)(type("WithMembers", (base,), members))


def plain(self, *arguments):
    """A function that is never called."""


@pytest.mark.parametrize(
    ("members", "meant"),
    [
        ({"end_of_site": plain}, "end_site"),
        ({"losss": plain}, "loss"),
        ({"after_gradient": plain}, "after_grad"),
        ({"n_synthetics": property(plain)}, "n_synthetic"),
        ({"keep": "statistics"}, "keeps"),
        ({"need_generator": True}, "needs_generator"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_right_one(members, meant):
    with pytest.raises(AssertionError, match=rf"did you mean {meant}\?"):
        check_method(with_members(**members))


def test_the_name_of_a_method_of_the_package_is_taken():
    with pytest.raises(AssertionError, match="'er' is that of a method of fcforge, ER"):
        check_method(with_members(name="er", loss=Method.loss))


def test_helpers_settings_and_own_constants_may_have_other_names(capsys):
    members = {
        "weights": (0.2, 0.3),  # near `weighs`, which is a bool
        "_losses": plain,
        "importance": plain,
        "losses": 3,
        "__annotations__": {"losses": int},  # a setting
    }
    check_method(with_members(**members))
    assert capsys.readouterr().out.startswith("with-members passes: 9 rules in ")


def test_a_class_that_changes_nothing_is_named_as_the_one_it_derives_from():
    with pytest.warns(UserWarning, match="it learns as fine-tuning"):
        check_method(with_members())
    with pytest.warns(UserWarning, match="no hook of ER .* it learns as ER"):
        check_method(with_members(METHODS["er"], keeps="real subjects", title="Mine"))


@pytest.mark.parametrize("error", [TypeError, AttributeError, KeyError, ValueError])
def test_an_error_inside_a_hook_is_shown_with_the_hooks_name(error):
    def end_site(self, model, lane, site):
        raise error("a mistake of mine")

    with pytest.raises(error, match="a mistake of mine") as caught:
        check_method(with_members(end_site=end_site))
    assert "WithMembers.end_site" in caught.value.__notes__[0]


def test_a_hook_that_returns_nothing_is_told_what_hooks_return():
    with pytest.raises(AssertionError, match="return the types that Method declares"):
        check_method(with_members(end_site=plain))
