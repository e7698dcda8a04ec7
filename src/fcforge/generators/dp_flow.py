"""dp_flow: corr_flow trained by DP-SGD; all that is not trained is public."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from fcforge.generators import layers as nn
from fcforge.generators.base import FCBatch, Generator, GeneratorState
from fcforge.generators.corr_flow import flow_init, flow_loss, integrate
from fcforge.generators.gaussian import decode
from fcforge.generators.layers import Params
from fcforge.graphs import log_edges, n_rois_of
from fcforge.privacy.mechanisms import Noise, read_template, secret_rng, sigma_for, spent
from fcforge.settings import Fraction, Positive, ShareBelowOne, Size

TEMPLATE = ("log_mean", "log_axes", "log_spread", "log_diagonal", "log_start")


def subject_loss(params: Params, x1: Tensor, y: Tensor, x0: Tensor, t: Tensor) -> Tensor:
    """Flow-matching loss of ONE subject (k,), averaged over m draws of (x0, t)."""
    return flow_loss(params, x0, x1.expand_as(x0), y.expand(len(t)), t)


def per_subject_gradients(params: Params, x1: Tensor, y: Tensor, x0: Tensor, t: Tensor) -> Params:
    """Gradient of every subject's own loss, each (b, ...)."""
    return vmap(grad(subject_loss), in_dims=(None, 0, 0, 0, 0))(params, x1, y, x0, t)


def clipped_sum(grads: Params, bound: float) -> Params:
    """Sum over subjects of gradients shortened to joint L2 norm at most `bound`."""
    norm = torch.stack([g.flatten(1).square().sum(1) for g in grads.values()]).sum(0).sqrt()
    factor = (bound / norm.clamp_min(1e-30)).clamp(max=1.0)
    return {k: torch.tensordot(factor, g, dims=1) for k, g in grads.items()}


def noisy_gradient(
    grads: Params, bound: float, sigma: float, size: float, rng: torch.Generator
) -> Params:
    """(clipped sum + N(0, (sigma bound)^2)) / expected batch size: one DP-SGD step's gradient."""
    total = clipped_sum(grads, bound)
    return {
        k: (g + sigma * bound * torch.randn(g.shape, generator=rng, device=g.device)) / size
        for k, g in total.items()
    }


@dataclass(frozen=True)
class DPFlow(Generator):
    """Class-conditional flow with (epsilon, delta) differential privacy of its state.

    Mean, axes and spreads come from a public template (people outside the study) or, without
    one, are fixed numbers: no class mean, standardisation or variance of the site is used
    outside the budget. The flow starts as the identity, so what it has not learnt is public.

    Parameters
    ----------
    public : str
        Template file (`fcforge.privacy.template`).
    epsilon, delta : float
        Budget of every training subject (add or remove one). The number of subjects, the
        classes there are and the asked diagnoses are taken as public.
    rank, hidden : int
        Public axes the flow works in, width of its network: noise grows with both.
    clip : float
        Bound on a subject's gradient.
    draws : int
        (x0, t) per subject and step, averaged before clipping: costs no privacy.
    steps, batch_size, lr
        DP-SGD steps, expected Poisson batch, Adam's rate.
    ode_steps : int
        Midpoint steps of sampling.
    shrink : float
        As in `corr_gauss`.
    noise : {"secret", "seeded"}
        "seeded" makes experiments repeatable and gives no guarantee (state "secret" is 0).

    References
    ----------
    Abadi et al., Deep learning with differential privacy, CCS 2016.
    """

    name = "dp_flow"
    public: str = ""
    epsilon: Positive = 8.0
    delta: Fraction = 1e-3
    rank: Size = 16
    hidden: Size = 32
    clip: Positive = 0.5
    draws: Size = 16
    steps: Size = 150
    batch_size: Size = 64
    lr: Positive = 1e-2
    ode_steps: Size = 10
    shrink: ShareBelowOne = 0.02
    noise: Noise = "secret"

    def _frame(self, n_edges: int) -> dict[str, Tensor]:
        """Public coordinates: mean, axes, spread along them, spread outside, start of Newton."""
        if self.public:
            found = read_template(self.public, TEMPLATE, n_edges)
            axes, spread = found["log_axes"][: self.rank], found["log_spread"][: self.rank]
            return {
                "mean": found["log_mean"],
                "axes": axes,
                "unit": spread,
                "diagonal": found["log_diagonal"],
                "start": found["log_start"],
            }
        rng = torch.Generator().manual_seed(n_edges)
        axes = torch.linalg.qr(torch.randn(n_edges, self.rank, generator=rng)).Q.T
        return {
            "mean": torch.zeros(n_edges),
            "axes": axes.contiguous(),
            "unit": torch.ones(axes.shape[0]),
            "diagonal": torch.full((n_edges,), 0.1),
            "start": torch.full((n_rois_of(n_edges),), -0.5),
        }

    def learn(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """DP-SGD of the velocity field on public coordinates."""
        x = log_edges(batch.fc, self.shrink)
        frame = {k: v.to(x.device) for k, v in self._frame(x.shape[1]).items()}
        scores = (x - frame["mean"]) @ frame["axes"].T / frame["unit"]
        rate = min(1.0, self.batch_size / len(batch))
        sigma = sigma_for(self.epsilon, self.delta, rate, self.steps)
        params = self._train(scores, batch.y, rate, sigma, secret_rng(self.noise, rng))
        had = torch.stack([(batch.y == c).any() for c in range(nn.N_CLASSES)])
        return {
            **frame,
            **nn.frozen(params, "flow."),
            "counts": had.to(torch.int64),  # how many there are of each is not released
            "epsilon": torch.tensor(spent(rate, sigma, self.steps, self.delta)),
            "secret": torch.tensor(int(self.noise == "secret")),
            "delta": torch.tensor(self.delta),
            "sigma": torch.tensor(sigma),
        }

    def _train(
        self, scores: Tensor, y: Tensor, rate: float, sigma: float, rng: torch.Generator
    ) -> Params:
        k, device = scores.shape[1], scores.device
        start = flow_init(k, self.hidden, rng, gain=0.0)
        params = {name: v.to(device) for name, v in start.items()}
        optimiser = nn.adam(params, lr=self.lr)
        rng = nn.device_rng(rng, device)
        for _ in range(self.steps):
            chosen = nn.uniform(len(y), rng=rng) < rate  # Poisson
            x1, x1_y = scores[chosen], y[chosen]
            x0 = nn.normal(len(x1), self.draws, k, rng=rng)
            t = nn.uniform(len(x1), self.draws, rng=rng)
            grads = per_subject_gradients(params, x1, x1_y, x0, t)
            noisy = noisy_gradient(grads, self.clip, sigma, rate * len(y), rng)
            for name, value in params.items():
                value.grad = noisy[name]
            optimiser.step()
        return params

    def draw(self, state: GeneratorState, y: Tensor, rng: torch.Generator) -> Tensor:
        """Valid matrices by construction, one per diagnosis."""
        x0 = nn.normal(len(y), len(state["axes"]), rng=rng, to=y.device)
        x1 = integrate(nn.with_prefix(state, "flow."), x0, y, self.ode_steps)
        own = nn.normal(len(y), len(state["mean"]), rng=rng, to=y.device) * state["diagonal"]
        return decode(state["mean"] + (x1 * state["unit"]) @ state["axes"] + own, y, state["start"])

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Privacy spent and noise multiplier."""
        return {name: float(state[name]) for name in ("epsilon", "delta", "sigma", "secret")}
