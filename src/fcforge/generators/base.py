"""The contract of a generator of FC matrices, and functions that several generators share.

Shapes: n subjects, R ROIs, K classes. A lane is one network among several that train in parallel;
here each lane is the generator of one site.
"""

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
# fields of a fitted model that describe how its training went
DIAGNOSTICS = ("active_units", "latent_share")


class GeneratorState(NamedTuple):
    """A fitted generator.

    Attributes
    ----------
    counts : Tensor of shape (K,)
        Number of training subjects of each class; a class with 0 cannot be sampled.
    model : NamedTuple
        The learned numbers, of the type `Generator.state_type`.
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
    """Generator of FC matrices: settings that never change, and pure functions of a fitted state.

    One generator is fitted per site, on that site's training subjects alone. A subclass must set
    `name` and `state_type` and implement `learn` (or `learn_lanes`) and `draw`. This class checks
    the site before `learn` and the diagnoses before `draw`. `fcforge.generators.standalone` wraps
    a generator for use on numpy arrays.

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
        Whose data the samples are: copies of real subjects, or drawn from a model.
    min_subjects : int
        Smallest number of training subjects that can be fitted.
    needs_public : bool
        Whether its samples use the public subjects of the run.
    learns : tuple of str
        Kinds of target whose values may be given to `draw`.
    learns_columns : bool
        Whether every edge is learned as a number of its own, so that arbitrary numbers in the places of
        edges keep their distribution. They need not make correlation matrices then.
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
    learns_columns: ClassVar[bool] = False

    # -- a subclass implements draw, and learn or learn_lanes -------------------------------------
    def learn(self, batch: FCBatch, rng: RNG) -> Any:
        """Fit one site whose subjects have been checked.

        Parameters
        ----------
        batch : FCBatch
            The site's training subjects.
        rng : torch.Generator
            Source of all random numbers of the fit.

        Returns
        -------
        NamedTuple
            An instance of `state_type`.
        """
        raise NotImplementedError

    def learn_lanes(self, batches: Sequence[FCBatch], rngs: RNGs) -> list[Any]:
        """Fit several checked sites of the same ROIs, in the same steps or one after another.

        Parameters
        ----------
        batches : sequence of FCBatch
            Training subjects of each site.
        rngs : sequence of torch.Generator
            Source of random numbers of each site.

        Returns
        -------
        list of NamedTuple
            An instance of `state_type` for each site.
        """
        return [
            self.learn(batch, rng) for batch, rng in zip(batches, rngs, strict=True)
        ]

    @abstractmethod
    def draw(self, model: Any, y: Tensor, rng: RNG) -> Tensor:
        """Draw one FC matrix for each diagnosis of `y`.

        Parameters
        ----------
        model : NamedTuple
            The instance of `state_type` that `learn` returned.
        y : Tensor of shape (n,)
            Diagnoses that the site's training subjects had.
        rng : torch.Generator

        Returns
        -------
        Tensor of shape (n, R, R), on the device of the model
        """

    # -- callers use these ------------------------------------------------------------------------
    def fit(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """Fit one site's training subjects; raise `DataError` if they cannot be used.

        Parameters
        ----------
        batch : FCBatch
        rng : torch.Generator
            Source of all random numbers of the fit.
        """
        return self.fit_lanes([batch], [rng])[0]

    def fit_lanes(self, batches: Sequence[FCBatch], rngs: RNGs) -> list[GeneratorState]:
        """Fit several sites, each as if it were alone.

        Parameters
        ----------
        batches, rngs
            As for `learn_lanes`.

        Returns
        -------
        list of GeneratorState
            One for each site.

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

        Random numbers are drawn on the device of `rng`. With one `rng` on the CPU, every device
        therefore makes the same subjects up to rounding.

        Parameters
        ----------
        state : GeneratorState
        y : Tensor of shape (n,)
            Diagnoses.
        rng : torch.Generator
        device : torch.device or str, optional
            Device that makes the subjects; by default the state's.

        Raises
        ------
        DataError
            If no training subject had one of the diagnoses.
        """
        state = state if device is None else state.to(device)
        y = self.check_y(y, state.counts)
        with torch.no_grad():
            return FCBatch(self.draw(state.model, y, rng), y)

    def read_state(self, named: dict[str, Tensor]) -> GeneratorState:
        """Rebuild a state from the tensors that `GeneratorState.named` returned.

        Parameters
        ----------
        named : dict of Tensor

        Raises
        ------
        KeyError
            If a tensor is missing.
        """
        model = from_named(self.state_type, named, "model.")
        return GeneratorState(named["counts"], model)

    def check_site(self, batch: FCBatch) -> Tensor:
        """Check a site's subjects and count them by class.

        A site of one class is accepted: the generator then makes that class alone and `check_y`
        refuses the other.

        Returns
        -------
        Tensor of shape (K,)
            Number of subjects of each class.

        Raises
        ------
        DataError
            If the subjects are too few or their FC is no correlation.
        """
        if len(batch) < self.min_subjects:
            raise DataError(
                f"{len(batch)} training subjects are too few; {self.min_subjects} are needed.",
                where=self.where(),
                do=f"Collect at least {self.min_subjects} subjects of the site and give them at once.",
            )
        largest = float(batch.fc.abs().max())
        if not largest <= 1.0 + 1e-3:  # NaN is not
            raise DataError(
                f"the largest FC value is {largest:.3g}, so FC is not a correlation.",
                where=self.where(),
                do="Give Pearson correlations, not Fisher z. Removing confounds that were fitted on "
                "few subjects can also leave such values: fit them on public subjects "
                "([base_model]), or remove fewer confounds.",
            )
        return torch.bincount(batch.y, minlength=N_CLASSES)

    def check_y(self, y: Tensor, counts: Tensor) -> Tensor:
        """Check the diagnoses of a sample and move them to the state's device.

        Parameters
        ----------
        y : Tensor of shape (n,)
            Diagnoses to draw.
        counts : Tensor of shape (K,)
            Number of training subjects of each class.

        Returns
        -------
        Tensor of shape (n,), int64

        Raises
        ------
        DataError
            If no training subject had one of the diagnoses.
        """
        y = y.to(device=counts.device, dtype=torch.int64)
        trained = counts.nonzero()[:, 0]
        missing = y[~torch.isin(y, trained)].unique().tolist()
        if missing:
            raise DataError(
                f"samples of diagnosis {missing[0]} are requested, but no training subject had it.",
                where=self.where(),
                do="Sample only diagnoses that the site had.",
            )
        return y

    def history(self, model: Any) -> dict[str, Tensor]:
        """Return the terms of the training loss by name, each of shape (epochs,); none by default.

        Parameters
        ----------
        model : NamedTuple
            The fitted instance of `state_type`.
        """
        return {}

    @classmethod
    def in_lanes(cls) -> bool:
        """Return whether several sites can train in parallel, which is faster on a GPU."""
        return cls.learn_lanes is not Generator.learn_lanes

    def diagnoses(self, model: Any, y: Tensor, n: int) -> Tensor:
        """Return labels for a synthetic set with the class shares of the training subjects.

        Nothing is random. The labels are those at n equal steps of the training subjects sorted by
        class; then each class of `y` that this passed over takes a label from the most frequent one.

        Parameters
        ----------
        model : NamedTuple
            The fitted instance of `state_type`; a subclass may take the shares from it.
        y : Tensor of shape (n_training,)
            Labels of the training subjects.
        n : int
            Size of the synthetic set, at least the number of classes in `y`.

        Returns
        -------
        Tensor of shape (n,)
            Labels in ascending order.
        """
        patients = float(y.float().mean())  # their share, if there are two classes
        if classes_of(y) == N_CLASSES and 0 < patients < 1:
            return in_shares(patients, n)
        counts = torch.bincount(y).cpu()
        quantiles = (torch.arange(n) + 0.5) / n
        labels = torch.searchsorted(torch.cumsum(counts, 0) / counts.sum(), quantiles)
        present = torch.nonzero(counts)[:, 0]
        for label in present[~torch.isin(present, labels)]:
            most_frequent = torch.bincount(labels).argmax()
            labels[torch.nonzero(labels == most_frequent)[-1]] = label
        return labels.sort().values

    def diagnostics(self, state: GeneratorState) -> dict[str, float]:
        """Return those of the fields `DIAGNOSTICS` that the fitted model has, as numbers by name."""
        model = state.model
        return {k: float(getattr(model, k)) for k in DIAGNOSTICS if hasattr(model, k)}


def in_shares(patients: float, n: int) -> Tensor:
    """Return labels (n,) of controls (0), then of patients (1), at least one of each.

    Parameters
    ----------
    patients : float
        Share of patients, which is rounded to whole subjects.
    n : int
        Number of labels, at least 2.
    """
    count = min(max(round(n * patients), 1), n - 1)
    return (torch.arange(n) >= n - count).long()


def classes_of(y: Tensor) -> int:
    """Return the number of classes that labels come from: two, or more if a label is above 1."""
    return max(N_CLASSES, int(y.max()) + 1)


def normal(*shape: int, rng: RNG, to: torch.device | None = None) -> Tensor:
    """Draw standard normal numbers of a shape.

    Parameters
    ----------
    *shape : int
    rng : torch.Generator
        Numbers are drawn on its device.
    to : torch.device, optional
        Device to which they are moved.
    """
    return torch.randn(*shape, generator=rng, device=rng.device).to(to or rng.device)


def device_rng(rng: RNG, device: torch.device) -> RNG:
    """Return a random number generator on `device`.

    It is `rng` itself if that is on such a device, else a new one with a seed drawn from `rng`.
    """
    if rng.device.type == device.type:
        return rng
    seed = int(torch.randint(2**62, (1,), generator=rng))
    return torch.Generator(device=device).manual_seed(seed)


def trainable(params: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return a network's parameters on `device` as leaf tensors that require gradients."""
    return {k: v.to(device).requires_grad_() for k, v in params.items()}


def descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """Compute the gradient of `loss` and take one step of the optimiser."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def frozen(params: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return detached copies of a network's parameters."""
    return {k: v.detach().clone() for k, v in params.items()}
