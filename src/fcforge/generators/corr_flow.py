"""Flow matching in off-log coordinates: from the class Gaussian to the subjects."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.generators import layers as nn
from fcforge.generators.base import FCBatch, GeneratorState
from fcforge.generators.corr_gauss import CorrGauss
from fcforge.generators.layers import RNG, Params
from fcforge.graphs import log_edges
from fcforge.settings import NotNegative, Positive, Size


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
    shrink, covariance_shrink, class_keep, variance_match, mean_match
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
        k = scores.shape[1]
        device = scores.device
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
        spread = state["spread"]
        diagonal = state["diagonal"]
        x0 = spread * nn.normal(len(y), len(spread), rng=rng, to=y.device)
        x1 = integrate(nn.with_prefix(state, "flow."), x0, y, self.steps)
        own = nn.normal(len(y), len(diagonal), rng=rng, to=y.device)
        return state["unit"] * x1 @ state["axes"] + own * diagonal
