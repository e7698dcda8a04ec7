"""What a capsule holds: settings of the chain, one lane, subjects that may travel, the ledger."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from fcforge.capsule.ledger import Entry, learned
from fcforge.errors import CapsuleError, ConfigError
from fcforge.generators import GENERATORS
from fcforge.graphs import edges, from_edges
from fcforge.methods import METHODS, Lane
from fcforge.types import Component, FCBatch, LearnerSpec, RunSpec, Training

Calibrate = Literal["inner_val", "synthetic", "none"]
MAX_ROIS, MAX_NUMBER = 2_000, 100_000


@dataclass(frozen=True)
class Settings:
    """What all hospitals of a chain share; fixed by the first one.

    Attributes
    ----------
    learner, seed, n_rois, training, protocol, test_fraction, val_fraction
        As in `RunSpec`: a chain of capsules is a run whose sites never meet.
    judge : Component
        Generator of the synthetic held-out sets; the learner's own, else corr_gauss.
    held_out : int
        Synthetic held-out subjects per site (0: no metrics on past sites, no abstention).
    calibrate : {"inner_val", "synthetic", "none"}
        What the temperature of the probabilities is fitted on.
    rois : str
        SHA-256 of the ROI names, empty where unknown: hospitals must use one atlas.
    classes : tuple of two
        What labels 0 and 1 are called: numbers or texts.
    """

    learner: LearnerSpec
    n_rois: int
    seed: int = 0
    training: Training = field(default_factory=Training)
    protocol: Literal["strict", "paper"] = "strict"
    test_fraction: float = RunSpec.test_fraction
    val_fraction: float = RunSpec.val_fraction
    judge: Component = field(default_factory=lambda: Component("corr_gauss"))
    held_out: int = 64
    calibrate: Calibrate = "inner_val"
    rois: str = ""
    classes: tuple[Any, ...] = (0, 1)

    def spec(self, order: Sequence[str]) -> RunSpec:
        """The run this chain is, up to and including the last site of `order`."""
        return RunSpec(
            dataset=Component("capsule"),
            learner=self.learner,
            order=tuple(order),
            seed=self.seed,
            training=self.training,
            protocol=self.protocol,
            test_fraction=self.test_fraction,
            val_fraction=self.val_fraction,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain nested dict."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Inverse of `to_json`; odd names, types or sizes raise `CapsuleError`."""
        try:
            settings = cls(
                **{
                    **data,
                    "learner": LearnerSpec.from_json(data["learner"]),
                    "training": Training(**data["training"]),
                    "judge": Component(**data["judge"]),
                    "classes": tuple(data["classes"]),
                }
            )
        except (KeyError, TypeError, AttributeError, ValueError, ConfigError) as error:
            raise CapsuleError(f"its settings cannot be read ({error}).") from error
        settings.check()
        return settings

    def check(self) -> None:
        """Raise `CapsuleError` on values that no hospital can have meant."""
        numbers = [self.n_rois, self.seed, self.held_out, self.training.epochs]
        if not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
            raise CapsuleError("its settings hold something else than whole numbers.")
        if not (2 <= self.n_rois <= MAX_ROIS and 0 <= self.held_out <= MAX_NUMBER):
            raise CapsuleError(f"n_rois {self.n_rois}, held_out {self.held_out} cannot be used.")
        if len(self.classes) != 2 or not all(
            isinstance(c, (int, str, float)) for c in self.classes
        ):
            raise CapsuleError("its settings do not name two classes.")
        self._check_training()
        self._check_parts()

    def _check_training(self) -> None:
        t = self.training
        numbers = [t.batch_size, t.weight_decay, t.clip, self.test_fraction, self.val_fraction]
        numbers += [] if t.lr is None else [t.lr]
        possible = (
            all(isinstance(n, (int, float)) and 0 <= n <= MAX_NUMBER for n in numbers)
            and isinstance(t.batch_size, int)
            and 1 <= t.epochs <= MAX_NUMBER
            and t.batch_size >= 1
            and max(self.test_fraction, self.val_fraction) < 1
            and t.selection in ("fixed", "inner_val")
            and t.precision in ("float32", "tf32", "bfloat16")
            and self.protocol in ("strict", "paper")
            and self.calibrate in ("inner_val", "synthetic", "none")
            and isinstance(self.rois, str)
        )
        if not possible:
            raise CapsuleError("its training settings cannot be used.")

    def _check_parts(self) -> None:
        parts = (self.learner.method, self.learner.model, self.learner.generator, self.judge)
        for part in parts:
            if part is None:
                continue
            if not isinstance(part.name, str) or not isinstance(part.params, Mapping):
                raise CapsuleError("its settings name no method, model or generator.")
            if _largest(part.params) > MAX_NUMBER:
                raise CapsuleError(f"a setting of '{part.name}' is larger than {MAX_NUMBER}.")
        generators = [g.name for g in (self.learner.generator, self.judge) if g is not None]
        unknown = [self.learner.method.name] if self.learner.method.name not in METHODS else []
        unknown += [name for name in generators if name not in GENERATORS]
        if unknown:
            raise CapsuleError(f"this version of fcforge does not know '{unknown[0]}'.")


def _largest(value: Any) -> float:
    """Largest magnitude of the whole numbers in nested settings."""
    if isinstance(value, Mapping):
        return max(map(_largest, value.values()), default=0)
    if isinstance(value, (list, tuple)):
        return max(map(_largest, value), default=0)
    return abs(value) if isinstance(value, int) else 0


@dataclass(frozen=True)
class Subjects:
    """Subjects that travel, as upper triangles of their FC.

    Attributes
    ----------
    upper : Tensor of shape (m, R (R - 1) / 2), float32
    y : Tensor of shape (m,), int64
    site : Tensor of shape (m,), int64
        Place of their site in the capsule's list of sites.
    real : Tensor of shape (m,), uint8
        1 for a real subject (only ever with the flag that allows it).
    """

    upper: Tensor
    y: Tensor
    site: Tensor
    real: Tensor

    @classmethod
    def none(cls, n_rois: int) -> Subjects:
        """Nobody."""
        empty = torch.zeros(0, dtype=torch.int64)
        n_edges = n_rois * (n_rois - 1) // 2
        return cls(torch.zeros(0, n_edges), empty, empty, torch.zeros(0, dtype=torch.uint8))

    @classmethod
    def of(cls, batch: FCBatch, site: Tensor, real: Tensor) -> Subjects:
        """Subjects of a batch whose FC is exactly what its upper triangle says."""
        upper = edges(batch.fc).float()
        if len(batch) and not torch.equal(from_edges(upper), batch.fc):
            raise CapsuleError(
                "an FC matrix is not symmetric with unit diagonal, so that it would change by "
                "being sealed.",
                do="Generators must return symmetric matrices with ones on the diagonal.",
            )
        return cls(upper, batch.y, site, real)

    def __len__(self) -> int:
        return int(self.y.shape[0])

    def batch(self) -> FCBatch:
        """Their FC and labels."""
        n_rois = (1 + math.isqrt(1 + 8 * self.upper.shape[1])) // 2
        fc = from_edges(self.upper) if len(self) else torch.zeros(0, n_rois, n_rois)
        return FCBatch(fc, self.y)

    def of_site(self, place: int) -> FCBatch:
        """FC and labels of one site's."""
        return self.batch().select(self.site == place)

    def join(self, other: Subjects) -> Subjects:
        """These, then the others."""
        return Subjects(
            torch.cat([self.upper, other.upper]),
            torch.cat([self.y, other.y]),
            torch.cat([self.site, other.site]),
            torch.cat([self.real, other.real]),
        )


@dataclass(frozen=True)
class Capsule:
    """An opened (or not yet sealed) capsule.

    Attributes
    ----------
    settings : Settings
    sites : tuple of str
        Sites learned, in order.
    lane : Lane
        Parameters, batch-norm statistics, method state. The state's `row_keys` hold places in
        `remembered` (-1: empty slot) instead of bank rows.
    remembered, held_out : Subjects
    entries : tuple of dict
        The ledger.
    id : str
        SHA-256 of the manifest, which covers everything; empty until sealed.
    parent : str
        Id of the capsule it was made from.
    signed_by : str
        Hex of the Ed25519 public key whose signature was checked; empty without signature.
    """

    settings: Settings
    sites: tuple[str, ...]
    lane: Lane
    remembered: Subjects
    held_out: Subjects
    entries: tuple[Entry, ...]
    id: str = ""
    parent: str = ""
    signed_by: str = ""

    @property
    def keeps(self) -> str:
        """What the method carries beyond the network."""
        return METHODS[self.settings.learner.method.name].keeps

    @property
    def temperature(self) -> float:
        """Geometric mean of the temperatures measured at the hospitals; 1 without any."""
        found = [e["calibration"]["temperature"] for e in learned(self.entries)]
        logs = [math.log(t) for t in found if t is not None]
        return math.exp(sum(logs) / len(logs)) if logs else 1.0

    @property
    def holds_real(self) -> bool:
        """Whether sealing it needs the named flag."""
        generators = [self.settings.learner.generator, self.settings.judge]
        copies = any(
            GENERATORS[g.name].releases == "real subjects" for g in generators if g is not None
        )
        return self.keeps == "real subjects" or copies or bool(self.remembered.real.any())


def settings_for(learner: LearnerSpec, n_rois: int, **rest: Any) -> Settings:
    """Settings whose held-out sets come from the learner's own generator, if it has one."""
    if learner.generator is not None and learner.generator.name not in GENERATORS:
        raise ConfigError(f"unknown generator '{learner.generator.name}'.")
    judge = learner.generator or Component("corr_gauss")
    return Settings(learner=learner, n_rois=n_rois, **{"judge": judge, **rest})
