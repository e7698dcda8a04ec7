"""The contract of a continual-learning method: pure functions of one model's parameters.

A method is written for ONE model. The engine runs it alone on a CPU, or lifts it with
``torch.func.vmap`` over many (order, seed) lanes on a GPU; nothing here knows which.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.core.settings import Checked
from fcforge.core.target import Kind
from fcforge.models.base import Model, Output
from fcforge.nn.tensors import Inputs, Params
from fcforge.replay.bank import PublicView, SiteView
from fcforge.replay.memory import Declared, Replay, alike, bounded, recall

Keeps = Literal["nothing", "statistics", "real subjects", "synthetic subjects"]
EVERY = get_args(Kind)
DependsOn = Literal["order", "set", "site", "all"]
State = dict[str, Tensor]
Loss = tuple[Tensor, Params]  # and the batch-norm statistics after the step


class Lane(NamedTuple):
    """One model on its way through the sites: all that changes while it learns.

    Attributes
    ----------
    params : dict of Tensor
        The network's parameters.
    stats : dict of Tensor
        Its batch-norm running statistics.
    state : dict of Tensor
        What the method itself carries from site to site. Shapes depend on the model and the
        number of sites learned, never on their order, so that lanes can be stacked.
    """

    params: Params
    stats: Params
    state: State

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return next(iter(self.params.values())).device

    def holding(self, more: State) -> "Lane":
        """Lane whose state has these parts, too."""
        return self._replace(state={**self.state, **more})

    def named(self) -> dict[str, Tensor]:
        """All tensors as ``params/...``, ``stats/...`` and ``state/...``: how lanes are stored."""
        parts = self._asdict().items()
        return {
            f"{part}/{key}": v for part, values in parts for key, v in values.items()
        }

    @classmethod
    def from_named(cls, tensors: Mapping[str, Tensor]) -> "Lane":
        """The lane of tensors that `named` has named."""
        parts: dict[str, dict[str, Tensor]] = {part: {} for part in cls._fields}
        for name, value in tensors.items():
            part, key = name.split("/", 1)
            parts[part][key] = value
        return cls(**parts)


class Batch(NamedTuple):
    """Prepared subjects of one training step.

    Attributes
    ----------
    inputs : dict of Tensor
        What `Model.prepare` made of the FC; the subject is the first dimension.
    y : Tensor of shape (b,), int64, or float32 of a number
    replay : Replay or None
        Remembered subjects that come with them; None while nobody is remembered.
    """

    inputs: Inputs
    y: Tensor
    replay: Replay | None = None


def misfit(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean cross-entropy, or the sum weighted by `weight`; squared error of a number."""
    if y.is_floating_point():
        each = (logits[:, 0] - y).square()
        return each.mean() if weight is None else (each * weight).sum()
    if weight is None:
        return F.cross_entropy(logits, y)
    return (F.cross_entropy(logits, y, reduction="none") * weight).sum()


def answer(logits: Tensor) -> Tensor:
    """P(patient) (n,), P of each of more classes (n, K), or the number (n,), of logits."""
    outputs = logits.shape[-1]
    if outputs == 1:
        return logits[:, 0]
    p = torch.softmax(logits, -1)
    return p[:, 1] if outputs == 2 else p


@dataclass(frozen=True)
class Method(Checked):
    """A method. Fields are hyper-parameters; what it learns lives in ``lane.state``.

    Override only what the method needs; the defaults are plain fine-tuning.

    Class attributes
    ----------------
    keeps
        What travels to the next hospital beyond the network. Checked by the engine: a method
        that claims to keep no real subject cannot hold a real subject's row.
    depends_on
        What the model after some sites depends on: their "order", only their "set" (trained
        from scratch on the union), only the last "site", or nothing but "all" sites of the
        dataset. The runner shares work accordingly.
    from_scratch
        Whether every site is learned from the untrained network, so that of the sites before it
        only who was there matters: the runner then shows them without training.
    fits
        False for closed-form methods: the gradient loop is skipped.
    needs_generator
        Whether the learner must name a generator for its memory.
    from_public
        What the method makes of a run's public people: "pretraining" of its network (by the
        engine), whatever its own `learn_public` does, in a word or two, or "" for nothing.
    needs_public
        Whether the method needs public subjects with their base model.
    models
        Names of the models it works on (empty: all).
    features
        Of an edge model, where its settings name none; "" leaves the model's own.
    learns
        Kinds of target that it can learn.
    captures
        Whether `begin_epoch` runs often and keeps shapes, so that a CUDA graph of it pays.
    row_keys
        Keys of ``lane.state`` that hold bank rows (-1 marks an empty slot). Stores and chains
        turn them into subjects or addresses; the engine checks them against `keeps`.
    transient
        Beginnings of keys of ``lane.state`` that anybody can compute again (the untrained
        network): not counted as memory.
    """

    kind: ClassVar[str] = "method"
    name: ClassVar[str] = "finetune"
    title: ClassVar[str] = "fine-tuning"
    source: ClassVar[str] = ""
    keeps: ClassVar[Keeps] = "nothing"
    depends_on: ClassVar[DependsOn] = "order"
    from_scratch: ClassVar[bool] = False
    fits: ClassVar[bool] = True
    needs_generator: ClassVar[bool] = False
    from_public: ClassVar[str] = "pretraining"
    needs_public: ClassVar[bool] = False
    models: ClassVar[tuple[str, ...]] = ()
    features: ClassVar[str] = ""
    learns: ClassVar[tuple[Kind, ...]] = ("two classes", "more classes")
    captures: ClassVar[bool] = False
    row_keys: ClassVar[tuple[str, ...]] = ()
    transient: ClassVar[tuple[str, ...]] = ()

    @property
    def replay_size(self) -> int:
        """Remembered subjects per training step (0: the method replays nothing)."""
        return 0

    @property
    def asks_for(self) -> int:
        """Synthetic subjects that it has its generator make of every site, if any."""
        return 0

    def check_model(self, model: Model) -> None:
        """Raise `ConfigError` where the method cannot teach this model; asked before any work."""

    # -- once per lane or per site, plain Python ---------------------------------------------
    def start(self, model: Model, lane: Lane) -> Lane:
        """Lane before the first site: add the method's empty state here."""
        return lane

    def learn_public(self, model: Model, lane: Lane, public: PublicView) -> Lane:
        """Lane of a run with a start, before the first site; a network is pretrained already."""
        return lane

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """First look at a new site."""
        return lane

    def rows(self, lane: Lane, site: SiteView) -> Tensor:
        """Bank rows (n,) to train on at this site; the site's own by default."""
        return site.rows

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Last look at the site: Fisher information, masks, memory, generator."""
        return lane

    def declares(self, model: Model, lane: Lane, sites: int) -> dict[str, Declared]:
        """Every array of the state after `sites` sites; nothing else may travel in a chain.

        By default what `start` makes: a state that does not grow. `lane` has the network.
        """
        fresh = lane._replace(state={}).named()
        shapes = Lane.from_named({k: v.to("meta") for k, v in fresh.items()})
        found = alike(self.start(model, shapes).state)
        return bounded(found, sites, model.n_outputs)

    def statistics_rows(self, model: Model, inputs: Inputs, y: Tensor) -> Tensor | None:
        """Rows (n, q) whose second moments the method keeps, for audits; None without any."""
        return None

    def updates_at(self, epoch: int, epochs: int) -> bool:
        """Whether `begin_epoch` has work to do before epoch `epoch` of `epochs`."""
        return type(self).begin_epoch is not Method.begin_epoch

    def restart(self, epoch: int, epochs: int) -> float | None:
        """Factor of the rate from this epoch on, with a fresh optimiser; None to go on."""
        return None

    # -- pure, lifted over lanes ---------------------------------------------------------------
    def begin_epoch(self, model: Model, lane: Lane, bank: Inputs, key: Tensor) -> Lane:
        """Before each epoch (HCTS chooses its replay subset here). `bank` holds all rows."""
        return lane

    def draw(self, lane: Lane, key: Tensor) -> tuple[Tensor, Tensor]:
        """Memory slots (replay_size,) for one step and their weights (summing to one)."""
        raise AssertionError(
            "a method with replay_size > 0 says which slots it replays"
        )

    def recall(self, lane: Lane, inputs: Inputs, key: Tensor) -> Replay:
        """Remembered subjects of one step; `inputs` holds all rows of the bank."""
        return recall(lane.state, inputs, *self.draw(lane, key))

    def loss(
        self, model: Model, params: Params, lane: Lane, batch: Batch, key: Tensor
    ) -> Loss:
        """Scalar loss of `params` and the batch-norm statistics after the step."""
        out = model.apply(params, lane.stats, batch.inputs, train=True, key=key)
        return misfit(out.logits, batch.y), out.stats

    def after_grad(self, grads: Params, lane: Lane) -> Params:
        """Change the gradient before clipping (PackNet masks it)."""
        return grads

    def after_step(self, before: Params, lane: Lane, grads: Params) -> Lane:
        """After the optimiser: `lane.params` moved from `before` along `grads` (SI, PackNet)."""
        return lane

    def logits(self, model: Model, lane: Lane, inputs: Inputs) -> Tensor:
        """Scores (n, n_outputs): a logit of each class, or a number."""
        return model.apply(lane.params, lane.stats, inputs).logits


def seen(model: Model, lane: Lane, inputs: Inputs) -> Output:
    """What the lane's network says of some subjects: eval mode, no gradient."""
    with torch.no_grad():
        return model.apply(lane.params, lane.stats, inputs)


@dataclass(frozen=True)
class Learner:
    """A method and the model it teaches."""

    method: Method
    model: Model
