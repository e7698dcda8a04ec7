"""The contract of a generator of FC matrices, and the layers that networks among them share.

Layers are drawn from an explicit generator of random numbers (torch.nn uses a global one).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fcforge.core.errors import DataError
from fcforge.core.settings import Checked
from fcforge.core.subjects import FCBatch
from fcforge.core.target import Kind
from fcforge.nn.resources import give_back

Params = dict[str, Tensor]
GeneratorState = Params
RNG = torch.Generator
RNGs = Sequence[RNG]
N_CLASSES = 2
NETWORK = "net."  # before the names of a network's parameters in a state
# what a state may say of its training
DIAGNOSTICS = ("active_units", "latent_share")


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
    needs_public: ClassVar[bool] = False
    learns: ClassVar[tuple[Kind, ...]] = ("two classes",)

    def fit(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """Learn from one site's training subjects. Raises `DataError` on a site it cannot use."""
        return self.fit_lanes([batch], [rng])[0]

    def fit_lanes(self, batches: Sequence[FCBatch], rngs: RNGs) -> list[GeneratorState]:
        """One state per site, each as if its site were alone; no site is learnt if one is bad."""
        counts = [self.check_site(batch) for batch in batches]
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
        y = self.check_y(y, state["counts"])
        with torch.no_grad():
            return FCBatch(self.draw(state, y, rng), y)

    def check_site(self, batch: FCBatch) -> Tensor:
        """Subjects per class (K,), or a `DataError` that says why it cannot learn.

        A site with one class only is accepted: the generator then makes that class alone and
        `check_y` refuses the other.
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
                "such matrices, too: fit them on public people ([start]), or remove fewer.",
            )
        return torch.bincount(batch.y, minlength=N_CLASSES)

    def check_y(self, y: Tensor, counts: Tensor) -> Tensor:
        """`y` as int64 on the state's device; `DataError` for a class the site did not have."""
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
        raise NotImplementedError

    @classmethod
    def in_lanes(cls) -> bool:
        """Whether several sites are trained side by side: what a GPU is for."""
        return cls.learn_lanes is not Generator.learn_lanes

    @abstractmethod
    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """FC (n, R, R) of diagnoses that the site had, on the device of the state."""

    def diagnoses(self, state: GeneratorState, y: Tensor, n: int) -> Tensor:
        """Labels (n,) of a synthetic set: the class shares of `y`, at least one of each class."""
        if classes_of(y) == N_CLASSES:
            return in_shares(float(y.float().mean()), n)
        counts = torch.bincount(y).cpu()
        middles = (torch.arange(n) + 0.5) / n
        drawn = torch.searchsorted(torch.cumsum(counts, 0) / counts.sum(), middles)
        there = torch.nonzero(counts)[:, 0]
        missing = there[~torch.isin(there, drawn)]
        drawn[n - len(missing) :] = missing
        return drawn.sort().values

    def diagnostics(self, state: GeneratorState) -> dict[str, float]:
        """What the state says of its training, as plain numbers."""
        return {k: float(state[k]) for k in DIAGNOSTICS if k in state}


def in_shares(patients: float, n: int) -> Tensor:
    """Labels (n,), controls first, with this share of patients but at least one of each class."""
    count = min(max(round(n * patients), 1), n - 1)
    return (torch.arange(n) >= n - count).long()


def classes_of(y: Tensor) -> int:
    """Classes that labels can be of: two, or more where one is beyond them."""
    return max(N_CLASSES, int(y.max()) + 1)


# -- layers ---------------------------------------------------------------------------------------
def normal(*shape: int, rng: RNG, to: torch.device | None = None) -> Tensor:
    """Standard normal numbers drawn on the device of `rng`, and moved `to` another where given."""
    return torch.randn(*shape, generator=rng, device=rng.device).to(to or rng.device)


def device_rng(rng: RNG, device: torch.device) -> RNG:
    """Generator on `device` continuing `rng`: `rng` itself on its own device."""
    if rng.device.type == device.type:
        return rng
    seed = int(torch.randint(2**62, (1,), generator=rng))
    return torch.Generator(device=device).manual_seed(seed)


def linear_init(
    params: Params, name: str, n_in: int, n_out: int, rng: RNG, gain: float = 1.0
) -> None:
    """Put ``name.weight`` (n_out, n_in), uniform with variance gain^2 / (3 n_in), and a zero bias.

    Drawn on the CPU so that every device starts from the same numbers.
    """
    bound = gain / n_in**0.5
    params[f"{name}.weight"] = (2 * torch.rand(n_out, n_in, generator=rng) - 1) * bound
    params[f"{name}.bias"] = torch.zeros(n_out)


def linear(params: Params, name: str, x: Tensor) -> Tensor:
    """Affine map of the last dimension; linear where ``name.bias`` is not there."""
    return torch.nn.functional.linear(
        x, params[f"{name}.weight"], params.get(f"{name}.bias")
    )


def norm_init(params: Params, name: str, size: int) -> None:
    """Put layer-norm gain and bias of ``name``."""
    params[f"{name}.weight"] = torch.ones(size)
    params[f"{name}.bias"] = torch.zeros(size)


def norm(params: Params, name: str, x: Tensor) -> Tensor:
    """Layer norm over the last dimension."""
    weight = params[f"{name}.weight"]
    return torch.nn.functional.layer_norm(
        x, weight.shape, weight, params[f"{name}.bias"]
    )


def moved(params: Params, device: torch.device | str) -> Params:
    """The same numbers on `device`."""
    return {k: v.to(device) for k, v in params.items()}


def trainable(params: Params, device: torch.device) -> Params:
    """Leaf copies on `device` that require gradients."""
    return {k: v.to(device).requires_grad_() for k, v in params.items()}


def step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """One descent step."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def frozen(params: Params) -> GeneratorState:
    """Detached copies of a network's parameters, named for a generator state."""
    return {f"{NETWORK}{k}": v.detach().clone() for k, v in params.items()}


def network(state: GeneratorState) -> Params:
    """The network's parameters in a state."""
    named = {k: v for k, v in state.items() if k.startswith(NETWORK)}
    return {k.removeprefix(NETWORK): v for k, v in named.items()}


def stacked(params: Sequence[Params]) -> Params:
    """Parameters of all lanes along a first dimension."""
    return {k: torch.stack([p[k] for p in params]) for k in params[0]}
