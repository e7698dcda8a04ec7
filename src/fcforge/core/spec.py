"""Specification of a run: dataset, learner, order, seed, training, protocol and leaks."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.leaks import Leaks
from fcforge.core.settings import (
    FRACTION,
    SHARE_BELOW_ONE,
    Bound,
    Checked,
    above,
    at_least,
    checked,
    limits,
)

Protocol = Literal["strict", "paper"]
FOLDS = Bound(lambda v: v == 0 or v >= 2, "cannot be used", "Give 2 or more.")


@limits(
    epochs=at_least(1),
    batch_size=at_least(2),
    lr=above(0),
    weight_decay=at_least(0),
    clip=above(0),
    public_replay=at_least(0),
    public_pull=at_least(0),
)
@dataclass(frozen=True)
class Training(Checked):
    r"""Settings of the training of a network at one site, equal for every method of an experiment.

    Attributes
    ----------
    epochs : int
        Number of times that the site's training subjects are gone through.
    batch_size : int
        Largest number of the site's subjects in a training step.
    weight_decay : float
        Adam's weight decay, added to the gradient (not decoupled as in AdamW).
    clip : float
        Largest norm of the gradient; longer gradients are scaled down to it.
    lr : float or None
        Learning rate; None takes the model's own from the paper's hyper-parameter table.
    selection : {"fixed", "inner_val"}
        Which epoch's network is kept: the last, or the one with the lowest loss on the validation
        part that is cut from the training part.
    precision : {"float32", "tf32"}
        Precision of matrix products; parameters, sums and all else stay in float32. ``tf32``
        rounds factors to 10 bits of mantissa on an NVIDIA card and is float32 on a CPU.
    public_replay : int
        In a run with a base model: number of public subjects that join every batch, drawn at
        random. They are public, so that any method may keep them.
    public_pull : float
        In a run with a base model: strength :math:`s` of the penalty
        :math:`\tfrac{s}{2} \|\theta - \theta_0\|^2` on the distance from the parameters
        :math:`\theta_0` of the network pretrained on the public subjects.
    """

    kind: ClassVar[str] = "training"
    epochs: int = 100
    batch_size: int = 32
    lr: float | None = None
    weight_decay: float = 2e-4
    clip: float = 1.0
    selection: Literal["fixed", "inner_val"] = "fixed"
    precision: Literal["float32", "tf32"] = "float32"
    public_replay: int = 0
    public_pull: float = 0.0

    @property
    def uses_public(self) -> bool:
        """Whether public subjects are used beyond pretraining."""
        return self.public_replay > 0 or self.public_pull > 0


@dataclass(frozen=True)
class LearnerSpec:
    """Specification of a learner: a method on a model, with a generator where it needs one.

    A learner is one row of the results table.

    Attributes
    ----------
    method, model : Component
    generator : Component or None
    title : str
        Name of the row; by default ``method/model``.
    training : mapping
        Training settings in place of the experiment's, for this learner alone, e.g.
        ``{"weight_decay": 0.1}``.
    base_model : bool
        Whether the learner begins from the run's base model, if the run has one.
    """

    method: Component
    model: Component
    generator: Component | None = None
    title: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    base_model: bool = True

    def __post_init__(self) -> None:
        """Set the default title."""
        if not self.title:
            object.__setattr__(self, "title", f"{self.method.name}/{self.model.name}")

    def __hash__(self) -> int:
        """Return the hash of the title: `training` is a mapping, which has none."""
        return hash(self.title)


@dataclass(frozen=True)
class BaseModelSpec:
    """Public subjects that a base model is fitted on.

    Attributes
    ----------
    dataset : Component
        Data set that has the public subjects.
    sha256 : str
        Hash of the dataset's content (`Cohort.content_sha256`), or "" before it is read.
    """

    dataset: Component
    sha256: str = ""


@limits(
    test_fraction=FRACTION,
    val_fraction=SHARE_BELOW_ONE,
    folds=FOLDS,
    visits=at_least(1),
)
@dataclass(frozen=True, kw_only=True)
class Conditions(Checked):
    """Settings that all runs of an experiment share, apart from the dataset.

    Attributes
    ----------
    training : Training
    protocol : {"strict", "paper"}
        "strict": test subjects touch nothing but the final scores. "paper": the paper's settings, still
        without its leaks.
    leaks : Leaks
        Ways in which test subjects are let into training on purpose; none by default.
    test_fraction, val_fraction : float
        Share of a site's subjects that is tested, and share of the rest that is validated on.
    folds : int
        Number k of folds of cross-validation. Seed s tests fold ``s % k`` of repetition ``s // k``,
        so that k seeds in a row test everybody once. With 0 folds every seed tests a random
        `test_fraction`.
    visits : int
        Number of portions in which a site's training subjects arrive. The site order is gone through
        as many times, each time with further subjects. All visits of a site share its test subjects.
    confounds : tuple of str
        Covariates whose effect is removed from every scan.
    base_model : BaseModelSpec or None
        Public subjects that a base model is fitted on.
    own_threshold : bool
        Whether the tables show every run a second time, with a decision threshold fitted for each
        site (`fcforge.experiments.site_thresholds`).
    """

    training: Training = field(default_factory=Training)
    protocol: Protocol = "strict"
    leaks: Leaks = field(default_factory=Leaks)
    test_fraction: float = 0.3
    val_fraction: float = 0.2
    folds: int = 0
    visits: int = 1
    confounds: tuple[str, ...] = ()
    base_model: BaseModelSpec | None = None
    own_threshold: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the conditions as nested dictionaries of plain values, which `from_json` reads."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the conditions that `to_json` has written, in this or an earlier version of fcforge.

        Raises
        ------
        ConfigError
            If a setting is unknown, or the scans were harmonised by a version that could.
        """
        settings = _with_present_names(data)
        if settings.pop("harmonise", "none") != "none":
            raise ConfigError(
                "its scans were harmonised, which this version of fcforge cannot do."
            )
        return cls(**checked(cls, settings, cls.where()))


def _with_present_names(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings of a run, an experiment or a learner under their present names.

    Earlier versions called `base_model` "start".
    """
    renamed = {"start": "base_model"}
    settings = {renamed.get(name, name): value for name, value in data.items()}
    if isinstance(settings.get("learner"), Mapping):
        settings["learner"] = _with_present_names(settings["learner"])
    if isinstance(settings.get("learners"), list):
        settings["learners"] = [
            _with_present_names(one) if isinstance(one, Mapping) else one
            for one in settings["learners"]
        ]
    return settings


@dataclass(frozen=True)
class RunSpec(Conditions):
    """Specification of a run: everything that determines its numbers.

    `fcforge.experiments.run_keys` derives its key. Runs whose orders begin with the same sites share
    the training at these sites: all orders form a prefix tree. A node of the tree is the training at
    one site after certain others. It is described by the RunSpec of its shorter order (`prefix`).

    Attributes
    ----------
    dataset : Component
        Data set with the sites.
    learner : LearnerSpec
    order : tuple of str
        Sites in the order in which they are learned.
    seed : int
        Seed of the splits, the first parameters and all draws.
    data_sha256 : str
        Hash of the dataset's content (`Cohort.content_sha256`), or "" before it is read.
    left_out : int or None
        For tuning: the fold of every site's training subjects that is scored instead of trained on.
    """

    kind: ClassVar[str] = "run"
    dataset: Component
    learner: LearnerSpec
    order: tuple[str, ...]
    seed: int
    data_sha256: str = ""
    left_out: int | None = None

    def prefix(self, depth: int) -> "RunSpec":
        """Return the spec of the first `depth` sites of this order."""
        return replace(self, order=self.order[:depth])

    @property
    def fitted_on(self) -> tuple[str, ...]:
        """Sites whose training parts the removal of confounds is fitted on.

        None without confounds, and none in a run with a base model: the removal is then fitted on the
        public subjects.
        """
        if not self.confounds or self.base_model is not None:
            return ()
        return tuple(sorted(self.order))
