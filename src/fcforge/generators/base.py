"""The contract of a generator of FC matrices."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fcforge.generators.layers import N_CLASSES, RNG, moved
from fcforge.messages import DataError
from fcforge.settings import Checked
from fcforge.speed import give_back
from fcforge.types import FCBatch, Kind

GeneratorState = dict[str, Tensor]
RNGs = Sequence[RNG]


@dataclass(frozen=True)
class Generator(Checked, ABC):
    """A generator: frozen hyper-parameters; what it learnt is a dict of tensors.

    One generator is fitted per site, on that site's training subjects alone. A subclass says how
    it learns and draws (`learn`, `draw`); what every generator asks of its site and of the
    diagnoses to draw is asked here.
    """

    kind: ClassVar[str] = "generator"
    name: ClassVar[str]
    releases: ClassVar[Literal["real subjects", "synthetic subjects"]] = (
        "synthetic subjects"
    )
    min_subjects: ClassVar[int] = 4
    needs_start: ClassVar[bool] = False
    learns: ClassVar[tuple[Kind, ...]] = ("two classes",)

    def fit(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """Learn from one site's training subjects. Raises `DataError` on a site it cannot use."""
        return self.fit_lanes([batch], [rng])[0]

    def fit_lanes(self, batches: Sequence[FCBatch], rngs: RNGs) -> list[GeneratorState]:
        """One state per site, each as if its site were alone; no site is learnt if one is bad."""
        counts = [check_site(batch, self.name, self.min_subjects) for batch in batches]
        learnt = self.learn_lanes(batches, rngs)
        give_back()
        return [{"counts": n, **state} for n, state in zip(counts, learnt, strict=True)]

    def sample(
        self,
        state: GeneratorState,
        y: Tensor,
        rng: RNG,
        device: torch.device | str | None = None,
    ) -> FCBatch:
        """One synthetic subject per diagnosis of `y` (n,), symmetric with unit diagonal.

        Made on `device`, or where the state is. Random numbers are drawn where `rng` is, so that
        every device makes the same subjects but for rounding.
        """
        state = state if device is None else moved(state, device)
        y = check_y(y, state["counts"], self.name)
        with torch.no_grad():
            return FCBatch(self.draw(state, y, rng), y)

    # -- one of these two is for a subclass to write ----------------------------------------------
    def learn_lanes(
        self, batches: Sequence[FCBatch], rngs: RNGs
    ) -> list[GeneratorState]:
        """States of checked sites of equal ROIs: in the same steps, or one after another."""
        return [
            self.learn(batch, rng) for batch, rng in zip(batches, rngs, strict=True)
        ]

    def learn(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """State of a checked site, less the ``counts`` of its classes."""
        return self.learn_lanes([batch], [rng])[0]

    @classmethod
    def in_lanes(cls) -> bool:
        """Whether several sites are trained side by side: what a GPU is for."""
        return cls.learn_lanes is not Generator.learn_lanes

    @abstractmethod
    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """FC (n, R, R) of diagnoses that the site had, on the device of the state."""

    def diagnoses(self, state: GeneratorState, y: Tensor, n: int) -> Tensor:
        """Labels (n,) of a synthetic set: the class shares of `y`, at least one of each class."""
        if classes_of(y) > N_CLASSES:
            return several_shares(torch.bincount(y), n)
        return in_shares(float(y.float().mean()), n)

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Plain numbers on what was learnt (active units, KL, epochs, seconds, ...)."""
        return {}


def in_shares(patients: float, n: int) -> Tensor:
    """Labels (n,), controls first, with this share of patients but at least one of each class."""
    count = min(max(round(n * patients), 1), n - 1)
    return (torch.arange(n) >= n - count).long()


def several_shares(counts: Tensor, n: int) -> Tensor:
    """Labels (n,) in the shares of some counts, at least one of each class that has members."""
    middles = (torch.arange(n) + 0.5) / n
    ends = torch.cumsum(counts.cpu(), 0) / counts.sum().cpu()
    y = torch.searchsorted(ends, middles)
    there = torch.nonzero(counts.cpu())[:, 0]
    missing = there[~torch.isin(there, y)]
    y[n - len(missing) :] = missing
    return y.sort().values


def check_site(batch: FCBatch, name: str, min_subjects: int = 4) -> Tensor:
    """Subjects per class (K,), or a `DataError` that says why generator `name` cannot learn.

    A site with one class only is accepted: the generator then makes that class alone and
    `check_y` refuses the other.
    """
    where = f"generator '{name}'"
    if len(batch) < min_subjects:
        raise DataError(
            f"{len(batch)} training subjects are too few (at least {min_subjects}).",
            where=where,
            do="Merge the site with another one or leave it out.",
        )
    require_correlations(batch.fc, where)
    return torch.bincount(batch.y, minlength=N_CLASSES)


def classes_of(y: Tensor) -> int:
    """Classes that labels can be of: two, or more where one is beyond them."""
    return max(N_CLASSES, int(y.max()) + 1)


def require_correlations(fc: Tensor, where: str) -> None:
    """Raise `DataError` for FC (n, R, R) with values beyond 1."""
    largest = float(fc.abs().max())
    if not largest <= 1.0 + 1e-3:  # NaN is not
        raise DataError(
            f"FC reaches {largest:.3g}, so it is not a correlation.",
            where=where,
            do="Give Pearson correlations, not Fisher z. Confounds fitted on few people leave such "
            "matrices, too: fit them on public people ([start]), or remove fewer.",
        )


def check_y(y: Tensor, counts: Tensor, name: str) -> Tensor:
    """`y` as int64 on the state's device; `DataError` for a class the site did not have."""
    y = y.to(device=counts.device, dtype=torch.int64)
    had = counts.nonzero()[:, 0]
    missing = y[~torch.isin(y, had)].unique().tolist()
    if missing:
        raise DataError(
            f"diagnosis {missing[0]} was asked for but no training subject had it.",
            where=f"generator '{name}'",
            do="Sample only diagnoses that the site had.",
        )
    return y
