"""FCM-VAE of variant `stable` as a plain `torch.nn.Module` and an ordinary training loop.

The network, its names and its loss are those of `fcforge.generators.fcm_vae.StableVAE`, so that
parameters of one load into the other (tests/paper/test_bench.py compares the losses). It is the
code that one would write without lanes, CUDA graphs or a fused optimiser, for `bench.py`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fcforge.generators.fcm_vae import StableVAE
from fcforge.graphs import edges
from fcforge.nn.tensors import Inputs


class Block(nn.Module):
    """One block of the graph transformer."""

    def __init__(self, vae: StableVAE) -> None:
        super().__init__()
        d = vae.d_model
        self.heads = vae.heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff1, self.ff2 = nn.Linear(d, vae.d_ff), nn.Linear(vae.d_ff, d)
        self.spectral = nn.Linear(vae.k_pe, d, bias=False)

    def split(self, x: Tensor) -> Tensor:
        """Heads as an axis of their own."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor, spectral: Tensor, bias: Tensor) -> Tensor:
        """x (n, R, d), spectral (n, R, k), bias (n, R, R)."""
        q, k, v = (self.split(t) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        place = self.split(self.spectral(spectral))
        scale = q.shape[-1] ** -0.5
        scores = scale * (q @ k.mT + place @ place.mT) + bias[:, None]
        mixed = torch.softmax(scores, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.ff2(F.gelu(self.ff1(self.norm2(x))))


class PlainVAE(nn.Module):
    """FCM-VAE with a Gaussian likelihood and a baseline per class."""

    def __init__(self, vae: StableVAE, rois: int) -> None:
        super().__init__()
        self.vae, n_edges = vae, rois * (rois - 1) // 2
        d = vae.d_model
        self.input = nn.Linear(rois + vae.k_pe + 1, d)
        for i in range(vae.layers):
            self.add_module(f"layer{i}", Block(vae))
        self.readout, self.mu = nn.Linear(d, d), nn.Linear(d, vae.d_z)
        self.log_var, self.head = nn.Linear(d, vae.d_z), nn.Linear(vae.d_z, 1)
        self.factors = nn.Linear(vae.d_z, rois * vae.rank)
        self.alpha = nn.Parameter(torch.ones(vae.rank))
        self.baseline = nn.Parameter(torch.zeros(2, n_edges))
        self.log_noise = nn.Parameter(torch.zeros(n_edges))
        self.log_sigma_y = nn.Parameter(torch.tensor(0.25).log())

    def loss(self, batch: Inputs, noise: Tensor, beta: float) -> Tensor:
        """Minus the supervised ELBO of a batch."""
        x = self.input(batch["features"])
        for i in range(self.vae.layers):
            x = getattr(self, f"layer{i}")(x, batch["spectral"], batch["bias"])
        h = self.readout(x.mean(1))
        mu, log_var = self.mu(h), self.log_var(h).clamp(-8.0, 4.0)
        z = mu + (0.5 * log_var).exp() * noise
        omega = self.interaction(self.factors(z)) - self.interaction(self.factors.bias)
        error = (batch["target"] - self.baseline[batch["y"]] - omega).square()
        likelihood = 0.5 * (error * (-self.log_noise).exp() + self.log_noise).sum(-1)
        sigma = self.log_sigma_y.exp().clamp(self.vae.sigma_y_floor, 10.0)
        gap = (batch["y"].to(z.dtype) - self.head(z)[:, 0]) / sigma
        label = 0.5 * gap.square() + sigma.log()
        kl = 0.5 * (mu.square() + log_var.exp() - 1.0 - log_var).mean(0)
        cost = kl.clamp_min(self.vae.free_bits).sum()
        return likelihood.mean() + label.mean() + beta * cost

    def interaction(self, u: Tensor) -> Tensor:
        """Edges of U diag(alpha) U'."""
        u = u.unflatten(-1, (-1, self.vae.rank))
        return edges((u * self.alpha) @ u.mT)


def fit_plain(vae: StableVAE, site: Inputs, epochs: int, seed: int = 0) -> PlainVAE:
    """An ordinary training loop on one site's tensors."""
    rng = torch.Generator().manual_seed(seed)
    model = PlainVAE(vae, site["features"].shape[1])
    model.load_state_dict(vae.initial_params(site, rng))
    model.to(device := site["y"].device)
    optimiser = torch.optim.Adam(model.parameters(), lr=vae.lr)
    for epoch in range(epochs):
        beta = vae.kl_weight(epoch)
        for rows in torch.randperm(len(site["y"]), generator=rng).split(vae.batch_size):
            noise = torch.randn(len(rows), vae.d_z, generator=rng).to(device)
            batch = {k: v[rows.to(device)] for k, v in site.items()}
            optimiser.zero_grad()
            model.loss(batch, noise, beta).backward()
            nn.utils.clip_grad_norm_(model.parameters(), vae.clip)
            optimiser.step()
    return model
