"""The contract of a continual-learning method: pure functions of one model's parameters.

A lane is one training run: one learner, one order of sites, one seed. A method is written for one
lane. The engine runs it alone on a CPU, or for many lanes at once on a GPU (by ``torch.func.vmap``,
which "lifts" a function of one lane to all lanes). No method can tell which.

All subjects that may be trained on lie in a bank (`fcforge.replay.bank`), prepared for the model once. A
subject's number in it is its row; methods remember rows in place of data. Remembered subjects that join
a training step are replayed.

Shapes: n or b subjects, T past sites.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.errors import ConfigError
from fcforge.core.settings import Checked
from fcforge.core.target import Kind
from fcforge.models.base import Model, Output
from fcforge.nn.tensors import Inputs, Params
from fcforge.replay.bank import PublicView, SiteView
from fcforge.replay.memory import Replay
from fcforge.replay.state import ABSENT, from_named, named

Keeps = Literal["nothing", "statistics", "real subjects", "synthetic subjects"]
EVERY_TARGET = get_args(Kind)  # for `Method.learns`: two classes, more, or a number
DependsOn = Literal["order", "set", "site", "all"]


class Lane(NamedTuple):
    """All that changes in one training run: a network, and what its method remembers.

    Attributes
    ----------
    params : dict of Tensor
        The network's parameters.
    stats : dict of Tensor
        Its batch-norm running statistics.
    state : NamedTuple or ()
        The method's own state, of the type `Method.State`. Its shapes depend on the model and on the
        number of sites learned, never on their order, so that lanes can be stacked.
    """

    params: Params
    stats: Params
    state: Any = ABSENT

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(iter(self.params.values())).device

    def in_double_precision(self) -> "Lane":
        """Return the lane on the CPU with float64 in place of other floating-point numbers."""

        def convert(value: Tensor) -> Tensor:
            value = value.cpu()
            return value.double() if value.is_floating_point() else value

        return pytree.tree_map(convert, self)

    def with_state(self, **fields: Any) -> "Lane":
        """Return the lane with some fields of its state replaced."""
        return self._replace(state=self.state._replace(**fields))

    def named(self) -> dict[str, Tensor]:
        """Return all tensors by their stored names, e.g. ``params/conv0.weight``.

        The part before the slash is the field of the lane. Parameters and statistics are
        dictionaries of tensors already; those of a state get their names from `named`.
        """
        return {
            f"{part}/{key}": value
            for part, tree in self._asdict().items()
            for key, value in (tree if isinstance(tree, dict) else named(tree)).items()
        }

    @classmethod
    def from_named(cls, tensors: Mapping[str, Tensor], state: type = tuple) -> "Lane":
        """Return the lane with these tensors; the inverse of `Lane.named`.

        Parameters
        ----------
        tensors : mapping of str to Tensor
            Tensors by stored name.
        state : type
            Type of the method's state, `Method.State`.
        """
        parts: dict[str, dict[str, Tensor]] = {part: {} for part in cls._fields}
        for name, value in tensors.items():
            part, key = name.split("/", 1)
            parts[part][key] = value
        return cls(parts["params"], parts["stats"], from_named(state, parts["state"]))


class LossAndStats(NamedTuple):
    """The scalar loss of a step, and the batch-norm statistics after it."""

    total: Tensor
    stats: Params


class Loss(LossAndStats):
    """Loss of one training step: the pair (total, stats), with named terms as an attribute.

    Attributes
    ----------
    total : Tensor, scalar
        The number whose gradient is taken.
    stats : dict of Tensor
        Batch-norm statistics after the step.
    terms : dict of Tensor
        Terms of the total by name, each with its weight, so that they add up to it. They are only
        logged (`fcforge.training.logging`); without terms the log has the total alone.
    """

    terms: dict[str, Tensor]

    def __new__(
        cls, total: Tensor, stats: Params, terms: Mapping[str, Tensor] | None = None
    ) -> Self:
        """Return the loss; without `terms` it has no named ones."""
        loss = super().__new__(cls, total, stats)
        loss.terms = dict(terms or {})
        return loss

    @classmethod
    def of(cls, result: Any) -> Self:
        """Return a result of `Method.loss` as a `Loss`, also if it is a plain tuple."""
        return result if isinstance(result, cls) else cls(*result)


class Batch(NamedTuple):
    """Prepared subjects of one training step.

    Attributes
    ----------
    inputs : dict of Tensor
        Result of `Model.prepare`; the subject is the first dimension.
    y : Tensor of shape (b,), int64, or float32 where the target is a number
        Labels.
    replay : Replay or None
        Remembered subjects of the step; None while nothing is remembered.
    """

    inputs: Inputs
    y: Tensor
    replay: Replay | None = None


def label_loss(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the cross-entropy of class labels, or the squared error of a number, as a scalar.

    Parameters
    ----------
    logits : Tensor of shape (n, n_outputs)
    y : Tensor of shape (n,)
        Class labels, integers; or target values, if they are floating-point numbers.
    weight : Tensor of shape (n,), optional
        The subjects' losses are summed with these weights; by default their mean is taken.
    """
    if y.is_floating_point():
        errors = (logits[:, 0] - y).square()
        return errors.mean() if weight is None else (errors * weight).sum()
    if weight is None:
        return F.cross_entropy(logits, y)
    return (F.cross_entropy(logits, y, reduction="none") * weight).sum()


def prediction(logits: Tensor) -> Tensor:
    """Return the predictions that logits (n, n_outputs) stand for.

    Returns
    -------
    Tensor of shape (n,) or (n, n_outputs)
        The probability of being a patient (n,) for two classes, the probability of every class for
        more, the predicted number (n,) for one output.
    """
    outputs = logits.shape[-1]
    if outputs == 1:
        return logits[:, 0]
    p = torch.softmax(logits, -1)
    return p[:, 1] if outputs == 2 else p


Factor = float | Tensor
"""A factor of a term of the loss; a tensor where lanes that train together differ in it."""


def is_used(factor: Factor) -> bool:
    """Return whether a factor is above zero, or differs between lanes.

    A tensor counts as used without a look at its values, on which a lifted function must not branch.
    Lanes train together only if a factor is zero in all of them or in none (`Method.without_factors`).
    """
    return isinstance(factor, Tensor) or factor > 0


@dataclass(frozen=True)
class Method(Checked):
    """A continual-learning method: fields are hyper-parameters, ``lane.state`` is what it learns.

    **To implement:** a `name`, and those of the ten hooks below that differ from fine-tuning.
    A method that carries something from site to site also names the type of its state in `State`
    and makes an empty one in `start`.

    ============== ======================================================================
    `start`        before the first site: the empty state
    `begin_site`   before a site's first epoch
    `rows`         subjects to train on
    `begin_epoch`  before an epoch (see `updates_at`)
    `recall`       remembered subjects of a step
    `loss`         loss of a step
    `after_grad`   change of the gradient before clipping
    `after_step`   after the optimiser
    `end_site`     after a site's last epoch: Fisher information, masks, memory, generator
    `logits`       scores
    ============== ======================================================================

    `begin_epoch`, `recall`, `loss`, `after_grad`, `after_step` and `logits` are lifted over lanes,
    so they must be pure functions of tensors. The others are plain Python, called for each lane.

    **May be set,** where the defaults of fine-tuning do not fit:

    Class attributes
    ----------------
    former_name : str
        Name before a renaming, if any. A config with it is refused with the present name; keys of
        stored runs keep it.
    title, source : str
        Row name of tables, and where the method comes from.
    State : type
        NamedTuple of ``lane.state`` (`fcforge.replay.state`); `tuple` for none.
    keeps : {"nothing", "statistics", "real subjects", "synthetic subjects"}
        What travels to the next hospital beyond the network; importances of weights are statistics.
        The engine checks that a method that declares no real subjects holds no row of one, and that
        no method adds subjects to the bank. That no other tensor holds a subject is the method's
        promise; `fcforge.testing.check_method` finds plain copies (`fcforge.testing.keeps_is_true`
        states which).
    depends_on : {"order", "set", "site", "all"}
        What the model after some sites depends on: their "order", only their "set" (trained from
        scratch on the union), only the last "site", or "all" sites of the dataset, whatever the
        order. Runs of different orders share work accordingly.
    from_scratch : bool
        Whether every site is learned from the untrained network, so that of the sites before it
        only their subjects matter. The runner then passes them to `begin_site` and `end_site`
        without training.
    fits : bool
        Whether the method trains by gradient steps; False for closed forms.
    needs_generator : bool
        Whether the learner must name a generator of synthetic subjects.
    from_public : str
        Use of a run's public subjects: "pretraining" of the network (by the engine), "" for none,
        or a word or two on what the method's own `start` does with them.
    needs_public : bool
        Whether the method needs public subjects with their base model.
    models : tuple of str
        Names of the models it works on; empty for all.
    features : str
        Features of an edge model whose settings name none; "" for the model's default.
    learns : tuple of str
        Kinds of target that it can learn.
    weighs : bool
        Whether training subjects may have weights. The engine draws subjects of batches and of
        `recall` in proportion to them; a closed form reads ``site.weight``.
    captures : bool
        Whether `begin_epoch` is called often and never changes shapes, so that recording it as a
        CUDA graph saves time.
    factors : tuple of str
        Fields that weigh terms of the loss. Learners that differ only in them train as lanes of one
        group on a GPU; in the lifted hooks except `logits` these fields may then be tensors. A hook
        that leaves a term out when its factor is zero must ask `is_used`.
    """

    kind: ClassVar[str] = "method"
    name: ClassVar[str] = "finetune"
    former_name: ClassVar[str]
    title: ClassVar[str] = "fine-tuning"
    source: ClassVar[str] = ""
    State: ClassVar[type] = tuple
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
    weighs: ClassVar[bool] = True
    captures: ClassVar[bool] = False
    factors: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Raise `ConfigError` if `keeps` or `depends_on` has an unknown value."""
        super().__init_subclass__(**kwargs)
        choices = {"keeps": get_args(Keeps), "depends_on": get_args(DependsOn)}
        for name, allowed in choices.items():
            value = getattr(cls, name)
            if value not in allowed:
                words = ", ".join(f"'{word}'" for word in allowed)
                raise ConfigError(
                    f"{name} = {value!r} is not one of {words}.",
                    where=f"class {cls.__name__}",
                    do="Choose the one that is true of the method's state.",
                )

    # -- once per lane or per site, plain Python ---------------------------------------------
    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane before the first site, with the method's empty state.

        Parameters
        ----------
        model : Model
        lane : Lane
            The untrained network, or one pretrained on the public subjects.
        public : PublicView, optional
            Public subjects of a run with a base model.
        """
        return lane

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Return the lane before the first epoch at a new site.

        Parameters
        ----------
        model : Model
        lane : Lane
            The lane after the site before.
        site : SiteView
            Training subjects of the new site.
        """
        return lane

    def rows(self, lane: Lane, site: SiteView) -> Tensor:
        """Return the bank rows (n,) to train on at this site; by default the site's own."""
        return site.rows

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Return the lane after the last epoch at a site.

        Here a method updates what it remembers. The site's subjects cannot be read afterwards.

        Parameters
        ----------
        model : Model
        lane : Lane
            The trained lane.
        site : SiteView
            Training subjects of the site, and synthetic ones made from them.
        """
        return lane

    # -- pure, lifted over lanes ---------------------------------------------------------------
    def begin_epoch(self, model: Model, lane: Lane, bank: Inputs, key: Tensor) -> Lane:
        """Return the lane before an epoch.

        Parameters
        ----------
        model : Model
        lane : Lane
        bank : dict of Tensor
            Prepared inputs of all rows of the bank.
        key : Tensor, int32 scalar
            Random key.
        """
        return lane

    def recall(self, lane: Lane, inputs: Inputs, key: Tensor) -> Replay | None:
        """Return the remembered subjects that one step replays; called from the second site on.

        By default there are none.

        Parameters
        ----------
        lane : Lane
        inputs : dict of Tensor
            Prepared inputs of all rows of the bank.
        key : Tensor, int32 scalar
            Random key.
        """
        return None

    def loss(
        self, model: Model, params: Params, lane: Lane, batch: Batch, key: Tensor
    ) -> Loss:
        """Compute the loss of a training step; by default the loss of the current subjects' labels.

        A plain tuple of loss and batch-norm statistics may be returned, too.

        Parameters
        ----------
        model : Model
        params : dict of Tensor
            Parameters to differentiate by; they equal ``lane.params``.
        lane : Lane
        batch : Batch
            Current and replayed subjects.
        key : Tensor, int32 scalar
            Random key, for dropout.

        Returns
        -------
        Loss
            The loss, the batch-norm statistics after the step, and the loss's named terms.
        """
        out = model.apply(params, lane.stats, batch.inputs, train=True, key=key)
        current = label_loss(out.logits, batch.y)
        return Loss(current, out.stats, {"current": current})

    def after_grad(
        self, model: Model, lane: Lane, grads: Params, batch: Batch, key: Tensor
    ) -> Params:
        """Return the gradient that is clipped and passed to the optimiser.

        Parameters
        ----------
        model : Model
        lane : Lane
        grads : dict of Tensor
            Gradient of `loss` at ``lane.params``.
        batch : Batch
            The subjects of the step, replayed ones included.
        key : Tensor, int32 scalar
            The random key that `loss` got.
        """
        return grads

    def after_step(self, before: Params, lane: Lane, grads: Params) -> Lane:
        """Return the lane after the optimiser's step.

        Parameters
        ----------
        before : dict of Tensor
            Parameters before the step.
        lane : Lane
            The lane with the new parameters.
        grads : dict of Tensor
            Gradient of `loss`, as `after_grad` got it.
        """
        return lane

    def logits(self, model: Model, lane: Lane, inputs: Inputs) -> Tensor:
        """Return scores (n, n_outputs): a logit of each class, or a number."""
        return model.apply(lane.params, lane.stats, inputs).logits

    # -- for a log, pure, lifted over lanes --------------------------------------------------------
    def penalties(self, lane: Lane) -> dict[str, Tensor]:
        """Return the penalties whose gradients `after_grad` adds, by name, for the log only."""
        return {}

    def observations(self, before: Lane, lane: Lane) -> dict[str, Tensor]:
        """Return numbers to log after `begin_epoch`, by name.

        Parameters
        ----------
        before, lane : Lane
            Before and after `begin_epoch`.

        Returns
        -------
        dict of Tensor
            Scalars, or one number per past site, shape (T,). NaN is not logged.
        """
        return {}

    # -- schedule and limits ---------------------------------------------------------------------
    def updates_at(self, epoch: int, epochs: int) -> bool:
        """Return whether `begin_epoch` is to be called before epoch `epoch` (from 0) of `epochs`."""
        return type(self).begin_epoch is not Method.begin_epoch

    def restart(self, epoch: int, epochs: int) -> float | None:
        """Return the factor of the learning rate, if the optimiser restarts before an epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.
        epochs : int
            Number of epochs at a site.

        Returns
        -------
        float or None
            Factor of the learning rate from then on; None, the default, for no restart.
        """
        return None

    @property
    def n_synthetic(self) -> int:
        """Number of synthetic subjects that the method takes from every site's generator."""
        return 0

    def check_model(self, model: Model) -> None:
        """Raise `ConfigError` if the method cannot teach this model; called before any work."""

    # -- lanes of one training ---------------------------------------------------------------------
    def factor_values(self) -> dict[str, float]:
        """Return the values of the `factors` by name."""
        return {name: getattr(self, name) for name in self.factors}

    def without_factors(self) -> "Method":
        """Return the method with every factor set to 1, or left at 0.

        Methods for which the result is equal can train as lanes of one group: they differ only in the
        size of terms that all of them compute (a factor of 0 leaves its term out, see `is_used`).
        """
        values = self.factor_values()
        switches: dict[str, Any] = {name: float(v > 0) for name, v in values.items()}
        return replace(self, **switches)

    def with_factors(self, values: Mapping[str, Tensor]) -> Self:
        """Return a copy with tensors in place of some factors, for use in lifted hooks.

        `values` has a scalar tensor per name: the factor of the lane for which a hook is called.
        """
        changed = copy.copy(self)
        # not by `replace`, which would check the bounds of numbers
        for name, value in values.items():
            object.__setattr__(changed, name, value)
        return changed


def eval_output(model: Model, lane: Lane, inputs: Inputs) -> Output:
    """Return the output of the lane's network in evaluation mode, without a gradient."""
    with torch.no_grad():
        return model.apply(lane.params, lane.stats, inputs)


@dataclass(frozen=True)
class Learner:
    """A method and the model that it trains."""

    method: Method
    model: Model
