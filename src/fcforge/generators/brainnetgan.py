"""BrainNetGAN: a Wasserstein GAN with BrainNetCNN's cross-shaped kernels.

Our reconstruction (generators.md 1.2): no code is public and only the abstract was readable. The
critic's sizes are those of a public WGAN with the same layers; the generator, the conditioning
on the label, the edge baseline and the schedule are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fcforge.generators.base import Generator, GeneratorState
from fcforge.generators.checks import N_CLASSES, check_labels, check_site, device_rng
from fcforge.generators.coordinates import clip_to_correlation
from fcforge.generators.layers import Params, frozen, linear, linear_init, with_prefix
from fcforge.generators.wgan import Schedule, train_wgan_lanes
from fcforge.graphs import edges, fisher_z, from_edges
from fcforge.types import FCBatch


def cross_init(
    p: Params, name: str, c_in: int, c_out: int, rois: int, rng: torch.Generator
) -> None:
    """Put the row and column kernels of an edge-to-edge layer, each (c_out, c_in * R)."""
    linear_init(p, f"{name}.row", c_in * rois, c_out, rng)
    linear_init(p, f"{name}.col", c_in * rois, c_out, rng)


def cross(p: Params, name: str, x: Tensor) -> Tensor:
    """Edge-to-edge (Kawahara et al. 2017): out_ij = row kernel at i + column kernel at j.

    (n, c_in, R, R) to (n, c_out, R, R).
    """
    row = linear(p, f"{name}.row", x.transpose(1, 2).flatten(2)).transpose(1, 2)
    col = linear(p, f"{name}.col", x.permute(0, 3, 1, 2).flatten(2)).transpose(1, 2)
    return row[:, :, :, None] + col[:, :, None, :]


def _leaky(x: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(x, 0.33)


def _onehot(y: Tensor) -> Tensor:
    return torch.eye(N_CLASSES, device=y.device)[y]


def critic(p: Params, fc: Tensor, y: Tensor) -> Tensor:
    """Two edge-to-edge layers, edge-to-node, node-to-graph, two linear; label at the end."""
    x = _leaky(cross(p, "e2e1", fc[:, None]))
    x = _leaky(cross(p, "e2e2", x))
    nodes = _leaky(linear(p, "e2n", x.transpose(1, 2).flatten(2))[..., 0])
    graph = _leaky(linear(p, "n2g", nodes))
    h = _leaky(linear(p, "fc1", torch.cat([graph, _onehot(y)], -1)))
    return linear(p, "fc2", h)[:, 0]


def generate(p: Params, noise: Tensor, y: Tensor, channels: int = 8) -> Tensor:
    """Noise and label to node features, to edges, through one edge-to-edge layer, tanh."""
    h = linear(p, "nodes", torch.cat([noise, _onehot(y)], -1)).unflatten(-1, (channels, -1))
    x = _leaky(h[:, :, :, None] + h[:, :, None, :])
    x = _leaky(cross(p, "e2e", x))
    x = torch.einsum("ncij,c->nij", x, p["mix.weight"][0])
    fc = torch.tanh(0.5 * (x + x.mT) + from_edges(p["baseline"], diagonal=0.0))
    eye = torch.eye(fc.shape[-1], device=fc.device)
    return fc * (1.0 - eye) + eye


@dataclass(frozen=True)
class BrainNetGAN(Generator):
    """Conditional WGAN-GP on FC matrices.

    Parameters
    ----------
    steps, n_critic, batch_size, lr
        WGAN-GP schedule; 3,000 steps are Gulrajani's order of size, the default is what two
        CPU cores do in minutes.
    width : int
        Channels of the critic's first layer (the second has twice as many).
    noise : int
        Size of z.
    project : {"none", "clip"}
        Samples are not positive semidefinite by construction; "clip" projects them.
    """

    name: ClassVar[str] = "brainnetgan"
    steps: int = 300
    n_critic: int = 5
    batch_size: int = 16
    lr: float = 1e-4
    width: int = 8
    noise: int = 100
    project: Literal["none", "clip"] = "none"

    def fit(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """Adversarial training; edge baselines start at the mean FC."""
        return self.fit_lanes([batch], [rng])[0]

    def fit_lanes(
        self, batches: Sequence[FCBatch], rngs: Sequence[torch.Generator]
    ) -> list[GeneratorState]:
        """One generator per site, trained side by side: what a GPU is for."""
        counts = [check_site(batch, self.name) for batch in batches]
        schedule = Schedule(
            self.steps, self.n_critic, self.batch_size, self.lr, (0.0, 0.9), 10.0, self.noise
        )
        done = train_wgan_lanes(
            [b.fc for b in batches],
            [b.y for b in batches],
            generate,
            critic,
            [self._start(b, rng) for b, rng in zip(batches, rngs, strict=True)],
            schedule,
            rngs,
        )
        return [
            {**frozen(params, "net."), "distance": distance, "counts": n}
            for (params, distance), n in zip(done, counts, strict=True)
        ]

    def _start(self, batch: FCBatch, rng: torch.Generator) -> tuple[Params, Params]:
        """Fresh generator and critic."""
        rois = batch.n_rois
        gen: Params = {}
        linear_init(gen, "nodes", self.noise + N_CLASSES, 8 * rois, rng)
        cross_init(gen, "e2e", 8, 16, rois, rng)
        linear_init(gen, "mix", 16, 1, rng)
        gen["baseline"] = fisher_z(edges(batch.fc)).mean(0).cpu()
        cri: Params = {}
        cross_init(cri, "e2e1", 1, self.width, rois, rng)
        cross_init(cri, "e2e2", self.width, 2 * self.width, rois, rng)
        linear_init(cri, "e2n", 2 * self.width * rois, 1, rng)
        linear_init(cri, "n2g", rois, 256, rng)
        linear_init(cri, "fc1", 256 + N_CLASSES, 128, rng)
        linear_init(cri, "fc2", 128, 1, rng)
        return gen, cri

    @torch.no_grad()
    def sample(self, state: GeneratorState, labels: Tensor, rng: torch.Generator) -> FCBatch:
        """Generate; projected when asked."""
        labels = check_labels(labels, state["counts"], self.name)
        rng = device_rng(rng, labels.device)
        noise = torch.randn(len(labels), self.noise, generator=rng, device=rng.device)
        fc = generate(with_prefix(state, "net."), noise, labels)
        fc = clip_to_correlation(fc) if self.project == "clip" else from_edges(edges(fc))
        return FCBatch(fc, labels)

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Critic's distance at the end."""
        return {"wasserstein": float(state["distance"][-1]), "steps": len(state["distance"])}
