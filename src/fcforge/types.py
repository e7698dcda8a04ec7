"""All that crosses a border between layers: FCBatch, Site, RunSpec, RunResult."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np

from fcforge.messages import ConfigError
from fcforge.settings import (
    Bound,
    Checked,
    Fraction,
    NotNegative,
    Positive,
    ShareBelowOne,
    Size,
    at_least,
    checked,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Estimate:
    """A number, its 95 % interval (NaN without one), and the SD over site orders where known."""

    value: float
    low: float
    high: float
    sd_orders: float = math.nan

    def to_json(self) -> list[float]:
        """Value, low, high, four digits each."""
        return [round(float(v), 4) for v in (self.value, self.low, self.high)]


Protocol = Literal["strict", "paper"]
Kind = Literal["two classes", "more classes", "number"]
TAU = 0.4  # an edge below it is not in the graph
SHRINK = 0.4  # share of the identity that is mixed into FC before its logarithm
LOG_SCALE = 0.05  # typical spread of an entry of that logarithm; fixed, never learnt
Folds = Annotated[
    int, Bound(lambda v: v == 0 or v >= 2, "cannot be used", "Give 2 or more.")
]


@dataclass(frozen=True)
class Target:
    """What is learned of a person: one of several classes, or a number between two limits.

    The one place that says what kind a target is; loss, scores, metrics and tables follow from
    it. Learners see a number scaled so that its limits are -1 and +1, where the closed forms put
    controls and patients: penalties and sensitivities are those of two classes.

    Attributes
    ----------
    name : str
        ``"diagnosis"``, or the covariate that is predicted.
    classes : tuple of str
        What the data call the classes, controls first; none where the target is a number.
    limits : (float, float)
        Agreed in advance, known to all; nobody's number lies outside.
    """

    name: str = "diagnosis"
    classes: tuple[str, ...] = ("0", "1")
    limits: tuple[float, float] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        """Refuse limits of a number that are not two finite ones, the smaller first."""
        try:
            low, high = self.limits
            increasing = -math.inf < low < high < math.inf
        except (TypeError, ValueError):
            increasing = False
        if not increasing:
            what = f"limits={self.limits!r} of target '{self.name}' are not two finite numbers"
            do = "Give the least and the most, e.g. --set 'dataset.limits=[5, 65]'."
            raise ConfigError(f"{what}, the smaller first.", do=do)

    def __str__(self) -> str:
        low, high = self.limits
        words = ", ".join(self.classes) or f"{low:g} to {high:g}"
        return f"{self.name} ({words})"

    @property
    def kind(self) -> Kind:
        """Two classes, more of them, or a number."""
        if not self.classes:
            return "number"
        return "two classes" if len(self.classes) == 2 else "more classes"

    @property
    def outputs(self) -> int:
        """Numbers that a model gives of a person: a logit of each class, or the number itself."""
        return len(self.classes) or 1

    @property
    def columns(self) -> int:
        """Numbers that a release is about: one, or one less than there are classes."""
        return max(1, self.outputs - 1)

    def fits(self, other: "Target") -> bool:
        """Whether another is learned as this one is.

        Of two classes each has words of its own; more have a word in common each, in one order.
        """
        same = (self.name, self.outputs, self.limits)
        if same != (other.name, other.outputs, other.limits):
            return False
        words = zip(self.classes, other.classes, strict=True)
        if self.kind != "more classes":
            return True
        return all(set(a.split("/")) & set(b.split("/")) for a, b in words)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Numbers as learners see them: -1 to 1 between the limits."""
        low, high = self.limits
        return (2 * values - low - high) / (high - low)

    def restored(self, values: np.ndarray) -> np.ndarray:
        """Inverse of `scaled`."""
        low, high = self.limits
        return (values * (high - low) + low + high) / 2


TWO_CLASSES = Target()


def kind_of(scores: np.ndarray, y: np.ndarray) -> Kind:
    """What scores (n,) or (n, K) and truths (n,) are of."""
    if scores.ndim == 2:
        return "more classes"
    return "number" if y.dtype.kind == "f" else "two classes"


def strata(y: np.ndarray) -> np.ndarray:
    """Groups (n,) whose shares splits and resampling keep: classes, or fifths of the numbers.

    Fewer than five of at least eight people each where there are fewer people.
    """
    if y.dtype.kind != "f":
        return y
    n = len(y)
    place = np.argsort(np.argsort(y, kind="stable"))
    return place * max(1, min(5, n // 8)) // max(n, 1)


@dataclass(frozen=True)
class FCBatch:
    """Functional connectivity of some subjects and what is to be learned of them.

    FC is the only stored form; graphs are computed from it by `fcforge.graphs`, for real and
    synthetic subjects alike.

    Parameters
    ----------
    fc : Tensor of shape (n_subjects, n_rois, n_rois), float32
        Pearson correlation matrices, symmetric, unit diagonal.
    y : Tensor of shape (n_subjects,), int64, or float32 of a number
        0 = control, 1 = patient, 2 and up further classes; of a number `Target.scaled`.
    """

    fc: "Tensor"
    y: "Tensor"

    @classmethod
    def from_numpy(cls, fc: np.ndarray, y: np.ndarray) -> "FCBatch":
        """Batch from arrays of shape (n, R, R) and (n,)."""
        import torch

        kind = np.float32 if y.dtype.kind == "f" else np.int64
        return cls(
            torch.from_numpy(np.ascontiguousarray(fc, dtype=np.float32)),
            torch.from_numpy(np.ascontiguousarray(y, dtype=kind)),
        )

    @classmethod
    def concat(cls, batches: "Sequence[FCBatch]") -> "FCBatch":
        """One batch holding all subjects of `batches`, in order."""
        import torch

        fc = torch.cat([batch.fc for batch in batches])
        y = torch.cat([batch.y for batch in batches])
        return cls(fc, y)

    def __len__(self) -> int:
        return int(self.y.shape[0])

    @property
    def n_rois(self) -> int:
        """Number of ROIs (116 for AAL, any other atlas works)."""
        return int(self.fc.shape[-1])

    def select(self, index: Any) -> "FCBatch":
        """Batch of the subjects at `index` (integer tensor, slice or boolean mask)."""
        return FCBatch(self.fc[index], self.y[index])

    def to(self, device: Any) -> "FCBatch":
        """The subjects on a device."""
        return FCBatch(self.fc.to(device), self.y.to(device))


@dataclass(frozen=True)
class Site:
    """One hospital: its subjects in three splits that share nobody.

    `train` and `val` are what a learner may see while the site is open; `test` is read by the
    evaluator alone. `val` is cut from the training part and folded back into it (see
    `learning`) when nothing is chosen on it.

    Parameters
    ----------
    name : str
    train, val, test : FCBatch
    subject_ids : mapping of split name to tuple of str
    covariates : mapping of split name to mapping of name to ndarray
        Optional per-subject numbers, e.g. ``{"train": {"mean_fd": ...}}``.
    """

    name: str
    train: FCBatch
    val: FCBatch
    test: FCBatch
    subject_ids: Mapping[str, tuple[str, ...]]
    covariates: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)

    def learning(self, *, with_val: bool) -> FCBatch:
        """What a learner trains on: train, plus val where nothing is chosen on val."""
        together = with_val and len(self.val)
        return FCBatch.concat([self.train, self.val]) if together else self.train

    @property
    def n_rois(self) -> int:
        """Number of ROIs."""
        return self.train.n_rois


@dataclass(frozen=True)
class Leaks(Checked):
    """The three ways the authors' code lets test data in; all off unless measured on purpose."""

    kind: ClassVar[str] = "leaks"
    select_on_test: bool = False
    context_on_test: bool = False
    generator_sees_test: bool = False

    def active(self) -> tuple[str, ...]:
        """Names of the switches that are on."""
        return tuple(k for k, v in asdict(self).items() if v)


@dataclass(frozen=True)
class Training(Checked):
    """How a network is trained at one site; equal for every method of an experiment.

    Attributes
    ----------
    epochs, batch_size, weight_decay, clip
        Of Adam, whose weight decay is added to the gradient (not decoupled as in AdamW), and
        whose gradient norm is clipped, as in the authors' code.
    lr : float or None
        None takes the model's own rate from the paper's hyper-parameter table.
    selection : {"fixed", "inner_val"}
        Last epoch, or the epoch with the lowest loss on the validation part cut from train.
    precision : {"float32", "tf32"}
        Of matrix products; parameters, sums and everything else stay in float32. ``tf32``
        rounds factors to 10 bits of mantissa on an NVIDIA card and is float32 on a CPU.
    """

    kind: ClassVar[str] = "training"
    epochs: Size = 100
    batch_size: Annotated[int, at_least(2)] = 32
    lr: Positive | None = None
    weight_decay: NotNegative = 2e-4
    clip: Positive = 1.0
    selection: Literal["fixed", "inner_val"] = "fixed"
    precision: Literal["float32", "tf32"] = "float32"


@dataclass(frozen=True)
class Component:
    """A registered thing by name with its parameters: model, method, generator or dataset."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LearnerSpec:
    """One row of the results table: a method on a model, with a generator where it needs one.

    `training` overrides some of the experiment's training settings for this learner alone, e.g.
    ``{"weight_decay": 0.1}``. `start` says whether it may use the experiment's public start.
    """

    method: Component
    model: Component
    generator: Component | None = None
    title: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    start: bool = True

    def __post_init__(self) -> None:
        if not self.title:  # the row's name
            object.__setattr__(self, "title", f"{self.method.name}/{self.model.name}")


@dataclass(frozen=True)
class PublicSpec:
    """Public people of a start: a dataset, and the hash of its content where it is known."""

    dataset: Component
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class Conditions(Checked):
    """What all runs of an experiment share beside the dataset.

    With `folds` = k > 0 seed s tests fold ``s % k`` of repeat ``s // k``: k seeds in a row test
    everybody once. Without, every seed tests `test_fraction` at random. `start` names the public
    people, `confounds` what is removed from every scan. With `own_threshold` every run is also
    shown with each site's own threshold (`fcforge.runner.own_threshold`).
    """

    training: Training = field(default_factory=Training)
    protocol: Protocol = "strict"
    leaks: Leaks = field(default_factory=Leaks)
    test_fraction: Fraction = 0.3
    val_fraction: ShareBelowOne = 0.2
    folds: Folds = 0
    confounds: tuple[str, ...] = ()
    start: PublicSpec | None = None
    own_threshold: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain nested dict; `from_json` reads it back."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; older files say, too, that no scan was harmonised."""
        said = dict(data)
        if said.pop("harmonise", "none") != "none":
            raise ConfigError("its scans were harmonised, which runs no longer do.")
        return cls(**checked(cls, said, cls.where()))


@dataclass(frozen=True)
class RunSpec(Conditions):
    """Everything that determines a run. Its hash names the run's folder.

    A prefix of an order is itself an order of fewer sites, so a node of the prefix tree is a
    RunSpec too (`prefix`). With `left_out` a fold of every site's training people is not trained
    on but scored.
    """

    kind: ClassVar[str] = "run"
    dataset: Component
    learner: LearnerSpec
    order: tuple[str, ...]
    seed: int
    data_sha256: str = ""
    left_out: int | None = None

    def prefix(self, depth: int) -> "RunSpec":
        """Spec of the first `depth` sites of this order."""
        return replace(self, order=self.order[:depth])

    @property
    def fitted_on(self) -> tuple[str, ...]:
        """Sites whose training parts the confound step is fitted on; none where a start has it."""
        return (
            tuple(sorted(self.order)) if self.confounds and self.start is None else ()
        )

    @cached_property
    def key(self) -> str:
        """16 hex digits of SHA-256 over all that changes numbers.

        A title does not, nor does the place of a file: where the content of the dataset is
        known (`data_sha256`) it stands for the dataset.
        """
        data = self.to_json()
        data["harmonise"] = "none"  # runs of when it was a setting keep their names
        data.pop("own_threshold")  # more runs, and the same ones
        if self.left_out is None:
            data.pop("left_out")
        data["learner"].pop("title")
        data["learner"].pop("training")  # already part of the run's training
        data["learner"].pop("start")  # and this of the run's start
        data["learner"]["method"]["params"].pop(
            "folder", None
        )  # of a pipeline's module
        if not self.folds:  # runs of before there were folds keep their names
            data.pop("folds")
        if self.start and self.start.sha256:
            data["start"].pop("dataset")
        if self.data_sha256:
            data.pop("dataset")
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class RunResult:
    """What happened in one run: the raw scores, so that any metric can be computed later.

    Attributes
    ----------
    spec : RunSpec
    sites : tuple of str
        All sites of the dataset, in the dataset's own order.
    scores : mapping of site to ndarray of shape (n_stages, n_test), float32
        P(patient) of every test subject of every site after every site of ``spec.order``:
        the full matrix, sites not yet learned (zero-shot) included. Of more than two classes the
        probability of each, (n_stages, n_test, K); of a number the prediction.
    initial : mapping of site to ndarray of shape (n_test,) or (n_test, K)
        The same before any learning (for forward transfer).
    y : mapping of site to ndarray of shape (n_test,), int64; float64 of a number, in its unit
    subject_ids : mapping of site to tuple of str
    train_mean : mapping of site to float, or to the shares of the classes (K,)
        Share of patients in the site's training part, or the mean number (for the majority row).
    memory_bytes : ndarray of shape (n_stages,)
        What the method keeps between sites beyond the network.
    seconds : ndarray of shape (n_stages,)
        Wall time of each site's training (a shared prefix counts once in the store, here too).
    environment : mapping
    """

    spec: RunSpec
    sites: tuple[str, ...]
    scores: Mapping[str, np.ndarray]
    initial: Mapping[str, np.ndarray]
    y: Mapping[str, np.ndarray]
    subject_ids: Mapping[str, tuple[str, ...]]
    train_mean: Mapping[str, Any]
    memory_bytes: np.ndarray
    seconds: np.ndarray
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """What kind of target the scores are of."""
        site = self.sites[0]
        return kind_of(self.scores[site][0], self.y[site])

    def truth(self, site: str) -> np.ndarray:
        """What scores are held against: y (n_test,); of more classes 0 and 1 (n_test, K)."""
        y = self.y[site]
        scores = self.scores[site]
        return y if scores.ndim == 2 else np.eye(scores.shape[-1])[y]


RunResults = Sequence[RunResult]
