"""Flow matching in off-log coordinates: corr_flow from the Gaussian to the subjects, and dp_flow.

dp_flow is trained by DP-SGD; all of it that is not trained is public.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from fcforge.generators import layers as nn
from fcforge.generators.base import FCBatch, Generator, GeneratorState
from fcforge.generators.corr_gauss import CorrGauss, decode, mirrored_normal
from fcforge.generators.layers import RNG, Params
from fcforge.graphs import log_edges, n_rois_of
from fcforge.privacy.mechanisms import (
    DELTA,
    Noise,
    noisy_gradient,
    read_template,
    secret_rng,
    sigma_for,
    spent,
)
from fcforge.settings import Fraction, NotNegative, Positive, ShareBelowOne, Size


def flow_init(k: int, hidden: int, rng: RNG, gain: float) -> Params:
    """Parameters of `velocity` in k dimensions; a `gain` of 0 starts it at v = 0."""
    params: Params = {}
    nn.linear_init(params, "in", k + nn.N_CLASSES + 1, hidden, rng)
    nn.linear_init(params, "hidden", hidden, hidden, rng)
    nn.linear_init(params, "out", hidden, k, rng, gain=gain)
    return params


def velocity(params: Params, x: Tensor, y: Tensor, t: Tensor) -> Tensor:
    """MLP v([x, onehot y, t]) with SELU, as DiffeoCFM's; (n, k) to (n, k)."""
    onehot = torch.eye(nn.N_CLASSES, dtype=x.dtype, device=x.device)[y]
    h = torch.selu(nn.linear(params, "in", torch.cat([x, onehot, t[:, None]], -1)))
    return nn.linear(params, "out", torch.selu(nn.linear(params, "hidden", h)))


def flow_loss(params: Params, x0: Tensor, x1: Tensor, y: Tensor, t: Tensor) -> Tensor:
    """Mean |v(x_t, y, t) - (x1 - x0)|^2 at x_t = (1 - t) x0 + t x1; subjects (n, k)."""
    xt = (1 - t[:, None]) * x0 + t[:, None] * x1
    return (velocity(params, xt, y, t) - (x1 - x0)).square().mean()


def integrate(params: Params, x: Tensor, y: Tensor, steps: int) -> Tensor:
    """dx/dt = v(x, y, t) from t = 0 to 1 by `steps` midpoint steps."""
    h = 1.0 / steps
    for i in range(steps):
        t = torch.full((x.shape[0],), i * h, device=x.device)
        half = x + 0.5 * h * velocity(params, x, y, t)
        x = x + h * velocity(params, half, y, t + 0.5 * h)
    return x


@dataclass(frozen=True)
class CorrFlow(CorrGauss):
    """Conditional flow matching after a global diffeomorphism (Collas et al., DiffeoCFM 2025).

    The flow moves the class residuals along the leading principal axes of the off-log
    coordinates, from the Gaussian of `corr_gauss` to the training subjects on straight paths;
    class means and the variance outside these axes stay those of `corr_gauss`. Off-log instead
    of DiffeoCFM's normalised Cholesky: it does not depend on the order of ROIs.

    Parameters
    ----------
    rank : int
        Principal axes the flow works in.
    jitter : float
        Noise on the training scores, as a share of each axis' spread, against memorising.
    hidden, epochs, batch_size, lr, weight_decay
        Network and AdamW; the rate warms up over 10 epochs.
    steps : int
        Midpoint steps of the sampling ODE.
    shrink, covariance_shrink, class_keep, variance_match, mean_match, antithetic
        As in `corr_gauss`.
    """

    name = "corr_flow"
    rank: Size | None = 64
    jitter: NotNegative = 0.3
    hidden: Size = 256
    epochs: Size = 200
    batch_size: Size = 64
    lr: Positive = 1e-3
    weight_decay: NotNegative = 1e-2
    steps: Size = 20

    def learn(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """Gaussian first, then the velocity field; under a minute for 120 subjects on a CPU."""
        state = self.gaussian(batch)
        factors = state.pop("factors")
        spread = factors.norm(dim=1).clamp_min(1e-12)
        state["axes"] = factors / spread[:, None]
        state["unit"] = spread.square().mean().sqrt()
        state["spread"] = spread / state["unit"]
        residual = log_edges(batch.fc, self.shrink) - state["mean"][batch.y]
        scores = residual @ state["axes"].T / state["unit"]
        state |= nn.frozen(self._train(scores, batch.y, state["spread"], rng), "flow.")
        return self.matched(state, batch, rng)

    def _train(self, scores: Tensor, y: Tensor, spread: Tensor, rng: RNG) -> Params:
        """Fit v to the straight paths from Gaussian draws to the (jittered) scores."""
        k, device = scores.shape[1], scores.device
        params = nn.trainable(flow_init(k, self.hidden, rng, gain=0.1), device)
        optimiser = torch.optim.AdamW(
            list(params.values()), lr=self.lr, weight_decay=self.weight_decay
        )
        rng = nn.device_rng(rng, device)
        for epoch in range(self.epochs):
            optimiser.param_groups[0]["lr"] = self.lr * min(1.0, (epoch + 1) / 10)
            order = torch.randperm(len(y), generator=rng, device=device)
            for index in order.split(self.batch_size):
                n = len(index)
                x1 = scores[index] + self.jitter * spread * nn.normal(n, k, rng=rng)
                x0 = spread * nn.normal(n, k, rng=rng)
                nn.step(
                    optimiser,
                    flow_loss(params, x0, x1, y[index], nn.uniform(n, rng=rng)),
                )
        return params

    def noise(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Gaussian draws moved by the flow along its axes; the Gaussian's own outside them."""
        x0 = state["spread"] * mirrored_normal(
            y, len(state["spread"]), rng, self.antithetic
        )
        x1 = integrate(nn.with_prefix(state, "flow."), x0, y, self.steps)
        own = mirrored_normal(y, len(state["diagonal"]), rng, self.antithetic)
        return state["unit"] * x1 @ state["axes"] + own * state["diagonal"]


TEMPLATE = ("log_mean", "log_axes", "log_spread", "log_diagonal", "log_start")


def subject_loss(
    params: Params, x1: Tensor, y: Tensor, x0: Tensor, t: Tensor
) -> Tensor:
    """Flow-matching loss of ONE subject (k,), averaged over m draws of (x0, t)."""
    return flow_loss(params, x0, x1.expand_as(x0), y.expand(len(t)), t)


def per_subject_gradients(
    params: Params, x1: Tensor, y: Tensor, x0: Tensor, t: Tensor
) -> Params:
    """Gradient of every subject's own loss, each (b, ...)."""
    return vmap(grad(subject_loss), in_dims=(None, 0, 0, 0, 0))(params, x1, y, x0, t)


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
    delta: Fraction = DELTA
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
            axes, spread = (
                found["log_axes"][: self.rank],
                found["log_spread"][: self.rank],
            )
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

    def learn(self, batch: FCBatch, rng: RNG) -> GeneratorState:
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
        self, scores: Tensor, y: Tensor, rate: float, sigma: float, rng: RNG
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

    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Valid matrices by construction, one per diagnosis."""
        x0 = nn.normal(len(y), len(state["axes"]), rng=rng, to=y.device)
        x1 = integrate(nn.with_prefix(state, "flow."), x0, y, self.ode_steps)
        own = (
            nn.normal(len(y), len(state["mean"]), rng=rng, to=y.device)
            * state["diagonal"]
        )
        return decode(
            state["mean"] + (x1 * state["unit"]) @ state["axes"] + own,
            y,
            state["start"],
        )

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Privacy spent and noise multiplier."""
        return {
            name: float(state[name]) for name in ("epsilon", "delta", "sigma", "secret")
        }
