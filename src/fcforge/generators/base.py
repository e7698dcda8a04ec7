"""The contract of a generator of FC matrices."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.errors import DataError
from fcforge.core.settings import Checked
from fcforge.core.subjects import FCBatch
from fcforge.core.target import Kind
from fcforge.nn.resources import give_back
from fcforge.nn.tensors import from_named, to_named

RNG = torch.Generator
RNGs = Sequence[RNG]
N_CLASSES = 2
DIAGNOSTICS = (
    "active_units",
    "latent_share",
)  # fields of a model that describe training


class GeneratorState(NamedTuple):
    """A fitted generator.

    Attributes
    ----------
    counts : Tensor of shape (n_classes,)
        Training subjects of each class; a class with 0 cannot be sampled.
    model : NamedTuple
        What the generator has learned, a `Generator.state_type`.
    """

    counts: Tensor
    model: Any

    def to(self, device: torch.device | str) -> "GeneratorState":
        """Return the same state on `device`."""
        return pytree.tree_map(lambda tensor: tensor.to(device), self)

    @property
    def n_bytes(self) -> int:
        """Size of all tensors in bytes."""
        return sum(x.numel() * x.element_size() for x in pytree.tree_leaves(self))

    def named(self) -> dict[str, Tensor]:
        """Return all tensors by the path of their fields, e.g. ``model.network.mu.weight``."""
        return to_named(self)


@dataclass(frozen=True)
class Generator(Checked, ABC):
    """Generator of FC matrices: frozen hyper-parameters and pure functions of its state.

    One generator is fitted per site, on that site's training subjects alone. A subclass must set
    `name` and `state_type` and implement `learn` (or `learn_lanes`) and `draw`; checks of the site
    and of the diagnoses to draw are made here. `fcforge.generators.standalone` wraps a generator
    for use on numpy arrays.

    Attributes
    ----------
    name : str
        Name in configs.
    former_name : str
        Name before a renaming, if any. A config with it is refused with the present name; keys of
        stored runs keep it.
    state_type : type
        NamedTuple of tensors and dictionaries of tensors that `learn` returns.
    releases : {"real subjects", "synthetic subjects"}
        What samples disclose.
    min_subjects : int
        Fewest training subjects.
    needs_public : bool
        Whether it draws from the public subjects of the run.
    learns : tuple of str
        Kinds of target it can condition on.
    """

    kind: ClassVar[str] = "generator"
    name: ClassVar[str]
    former_name: ClassVar[str]
    state_type: ClassVar[type[Any]]
    releases: ClassVar[Literal["real subjects", "synthetic subjects"]] = (
        "synthetic subjects"
    )
    min_subjects: ClassVar[int] = 4
    needs_public: ClassVar[bool] = False
    learns: ClassVar[tuple[Kind, ...]] = ("two classes",)

    # -- a subclass implements draw, and learn or learn_lanes -------------------------------------
    def learn(self, batch: FCBatch, rng: RNG) -> Any:
        """Fit one checked site and return a `state_type`."""
        raise NotImplementedError

    def learn_lanes(self, batches: Sequence[FCBatch], rngs: RNGs) -> list[Any]:
        """Fit checked sites of equal ROIs, in the same steps or one after another.

        Returns
        -------
        list of `state_type`
        """
        return [
            self.learn(batch, rng) for batch, rng in zip(batches, rngs, strict=True)
        ]

    @abstractmethod
    def draw(self, model: Any, y: Tensor, rng: RNG) -> Tensor:
        """Draw FC matrices of diagnoses that the site had.

        Parameters
        ----------
        model : NamedTuple
            The `state_type` that `learn` returned.
        y : Tensor of shape (n,)
        rng : torch.Generator

        Returns
        -------
        Tensor of shape (n, R, R), on the device of the model
        """

    # -- callers use these ------------------------------------------------------------------------
    def fit(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """Learn from one site's training subjects; raise `DataError` if they cannot be used."""
        return self.fit_lanes([batch], [rng])[0]

    def fit_lanes(self, batches: Sequence[FCBatch], rngs: RNGs) -> list[GeneratorState]:
        """Fit several sites, each as if it were alone.

        Raises
        ------
        DataError
            If one of the sites cannot be used; none is fitted then.
        """
        counts = [self.check_site(batch) for batch in batches]
        models = self.learn_lanes(batches, rngs)
        give_back()
        return [GeneratorState(*pair) for pair in zip(counts, models, strict=True)]

    def sample(
        self,
        state: GeneratorState,
        y: Tensor,
        rng: RNG,
        device: torch.device | str | None = None,
    ) -> FCBatch:
        """Draw one synthetic subject per diagnosis, symmetric with unit diagonal.

        Random numbers are drawn where `rng` is, so that every device makes the same subjects up to
        rounding.

        Parameters
        ----------
        state : GeneratorState
        y : Tensor of shape (n,)
        rng : torch.Generator
        device : torch.device or str, optional
            Where subjects are made; by default where the state is.
        """
        state = state if device is None else state.to(device)
        y = self.check_y(y, state.counts)
        with torch.no_grad():
            return FCBatch(self.draw(state.model, y, rng), y)

    def read_state(self, named: dict[str, Tensor]) -> GeneratorState:
        """Rebuild a state from its `GeneratorState.named` tensors; KeyError if one is missing."""
        model = from_named(self.state_type, named, "model.")
        return GeneratorState(named["counts"], model)

    def check_site(self, batch: FCBatch) -> Tensor:
        """Return the number of subjects per class (K,), or raise `DataError`.

        A site of one class is accepted: the generator then makes that class alone and `check_y`
        refuses the other.
        """
        if len(batch) < self.min_subjects:
            raise DataError(
                f"{len(batch)} training subjects are too few (at least {self.min_subjects}).",
                where=self.where(),
                do="Merge the site with another one or leave it out.",
            )
        largest = float(batch.fc.abs().max())
        if not largest <= 1.0 + 1e-3:  # NaN is not
            raise DataError(
                f"FC reaches {largest:.3g}, so it is not a correlation.",
                where=self.where(),
                do="Give Pearson correlations, not Fisher z. Confounds fitted on few people leave "
                "such matrices, too: fit them on public people ([base_model]), or remove fewer.",
            )
        return torch.bincount(batch.y, minlength=N_CLASSES)

    def check_y(self, y: Tensor, counts: Tensor) -> Tensor:
        """Return `y` as int64 on the state's device; raise `DataError` for a class without subjects."""
        y = y.to(device=counts.device, dtype=torch.int64)
        had = counts.nonzero()[:, 0]
        missing = y[~torch.isin(y, had)].unique().tolist()
        if missing:
            raise DataError(
                f"diagnosis {missing[0]} was asked for but no training subject had it.",
                where=self.where(),
                do="Sample only diagnoses that the site had.",
            )
        return y

    def history(self, model: Any) -> dict[str, Tensor]:
        """Return the terms of the training loss by name, each of shape (epochs,); none by default.

        Parameters
        ----------
        model : NamedTuple
            The fitted `state_type`.
        """
        return {}

    @classmethod
    def in_lanes(cls) -> bool:
        """Return whether several sites are trained side by side, which is faster on a GPU."""
        return cls.learn_lanes is not Generator.learn_lanes

    def diagnoses(self, model: Any, y: Tensor, n: int) -> Tensor:
        """Return labels (n,) in the class shares of `y`, at least one of each class that `y` has.

        Parameters
        ----------
        model : NamedTuple
            The fitted `state_type`.
        y : Tensor
            Labels of the training subjects.
        n : int
            Size of the synthetic set.
        """
        patients = float(y.float().mean())
        if classes_of(y) == N_CLASSES and 0 < patients < 1:
            return in_shares(patients, n)
        counts = torch.bincount(y).cpu()
        middles = (torch.arange(n) + 0.5) / n
        drawn = torch.searchsorted(torch.cumsum(counts, 0) / counts.sum(), middles)
        present = torch.nonzero(counts)[:, 0]
        missing = present[~torch.isin(present, drawn)]
        drawn[n - len(missing) :] = missing
        return drawn.sort().values

    def diagnostics(self, state: GeneratorState) -> dict[str, float]:
        """Return the model's `DIAGNOSTICS` as plain numbers."""
        model = state.model
        return {k: float(getattr(model, k)) for k in DIAGNOSTICS if hasattr(model, k)}


def in_shares(patients: float, n: int) -> Tensor:
    """Return labels (n,), controls first, with at least one of each class.

    Parameters
    ----------
    patients : float
        Share of patients.
    n : int
    """
    count = min(max(round(n * patients), 1), n - 1)
    return (torch.arange(n) >= n - count).long()


def classes_of(y: Tensor) -> int:
    """Return the number of classes of labels: two, or more where a label is beyond 1."""
    return max(N_CLASSES, int(y.max()) + 1)


def normal(*shape: int, rng: RNG, to: torch.device | None = None) -> Tensor:
    """Draw standard normal numbers on the device of `rng`, then move them `to` another device."""
    return torch.randn(*shape, generator=rng, device=rng.device).to(to or rng.device)


def device_rng(rng: RNG, device: torch.device) -> RNG:
    """Return a generator on `device` seeded from `rng`; `rng` itself on its own device."""
    if rng.device.type == device.type:
        return rng
    seed = int(torch.randint(2**62, (1,), generator=rng))
    return torch.Generator(device=device).manual_seed(seed)


def trainable(params: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return leaf copies on `device` that require gradients."""
    return {k: v.to(device).requires_grad_() for k, v in params.items()}


def descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step of an optimiser down the gradient of `loss`."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def frozen(params: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return detached copies of a network's parameters."""
    return {k: v.detach().clone() for k, v in params.items()}
