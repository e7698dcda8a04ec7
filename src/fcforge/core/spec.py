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
    r"""Training of a network at one site; equal for every method of an experiment.

    Attributes
    ----------
    epochs, batch_size : int
    weight_decay, clip : float
        Adam's weight decay, added to the gradient (not decoupled as in AdamW), and the largest
        gradient norm, as in the authors' code.
    lr : float or None
        None takes the model's own rate from the paper's hyper-parameter table.
    selection : {"fixed", "inner_val"}
        Last epoch, or the epoch with the lowest loss on the validation part cut from train.
    precision : {"float32", "tf32"}
        Precision of matrix products; parameters, sums and all else stay in float32. ``tf32``
        rounds factors to 10 bits of mantissa on an NVIDIA card and is float32 on a CPU.
    public_replay : int
        In a run with a base model: public subjects that join every batch, drawn at random. Public
        people may be kept, by any method.
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
    """One row of the results table: a method on a model, with a generator where it needs one.

    `training` overrides some of the experiment's training settings for this learner alone, e.g.
    ``{"weight_decay": 0.1}``. `base_model` allows it the run's base model.
    """

    method: Component
    model: Component
    generator: Component | None = None
    title: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    base_model: bool = True

    def __post_init__(self) -> None:
        if not self.title:  # the row's name
            object.__setattr__(self, "title", f"{self.method.name}/{self.model.name}")

    def __hash__(self) -> int:
        """Return the hash of the title: `training` is a mapping, which has none."""
        return hash(self.title)


@dataclass(frozen=True)
class BaseModelSpec:
    """Public subjects of a base model: a dataset, and the hash of its content if known."""

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
    """Settings that all runs of an experiment share, beside the dataset.

    Attributes
    ----------
    training : Training
    protocol : {"strict", "paper"}
    leaks : Leaks
    test_fraction, val_fraction : float
        Share of a site's subjects that is tested, and share of the rest that is validated on.
    folds : int
        With k > 0 folds, seed s tests fold ``s % k`` of repeat ``s // k``, so that k seeds in a
        row test everybody once. With 0 every seed tests `test_fraction` at random.
    visits : int
        Portions in which a site's training subjects arrive: the order is gone through so many
        times, each time with further subjects. All visits of a site share its test subjects.
    confounds : tuple of str
        Covariates whose effect is removed from every scan.
    base_model : BaseModelSpec or None
        Public subjects that a base model is fitted on.
    own_threshold : bool
        Show every run a second time with each site's own threshold
        (`fcforge.experiments.site_thresholds`).
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
        """Return plain nested dictionaries, which `from_json` reads."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the conditions that `to_json` has written, also by an earlier version.

        Raises
        ------
        ConfigError
            If a setting is unknown, or the scans were harmonised by a version that could.
        """
        settings = _with_present_names(data)
        if settings.pop("harmonise", "none") != "none":
            raise ConfigError("its scans were harmonised, which runs no longer do.")
        return cls(**checked(cls, settings, cls.where()))


def _with_present_names(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings of a run, an experiment or a learner with the names of today."""
    settings = {("base_model" if k == "start" else k): v for k, v in data.items()}
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
    """Everything that determines a run (`fcforge.experiments.run_keys` derives its key).

    A prefix of an order is itself an order of fewer sites, so a node of the prefix tree is a
    RunSpec too (`prefix`). With `left_out` a fold of every site's training subjects is scored
    instead of trained on.
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
        """Sites whose training parts the confound step is fitted on; none where a base model has it."""
        return (
            tuple(sorted(self.order))
            if self.confounds and self.base_model is None
            else ()
        )
