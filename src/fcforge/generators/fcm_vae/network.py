"""FCM-VAE's network: structure-aware graph transformer, low-rank decoder, linear head.

Pure functions of a parameter dict; p = R(R-1)/2 edges, k Laplacian coordinates.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fcforge.generators.base import (
    N_CLASSES,
    RNG,
    Params,
    linear,
    linear_init,
    norm,
    norm_init,
)
from fcforge.generators.coordinates import few, in_parts
from fcforge.generators.fcm_vae.settings import VAESettings
from fcforge.graphs import (
    adjacency,
    binary,
    edges,
    laplacian,
    laplacian_coordinates,
    without_diagonal,
)

ATTEND_AT_ONCE = 128  # subjects of 116 ROIs: more than a batch has
OPEN = 1e-2  # what the gate lets through without an edge


def prepare(fc: Tensor, s: VAESettings) -> dict[str, Tensor]:
    """What the network reads of FC (n, R, R), computed once: it never changes in training.

    Returns
    -------
    dict
        ``features`` (n, R, R + k + 1): FC rows, Laplacian coordinates, degree (eq. x0);
        ``spectral`` (n, R, k); ``bias`` (n, R, R) = A + I; where there is a gate, ``gate`` (n, p)
        = edges of A.
    """
    rois = fc.shape[-1]
    adj = binary(adjacency(fc, s.tau))
    looped = adj + torch.eye(rois, device=fc.device)
    graph = looped if s.authors else adj
    coordinates = in_parts(partial(_coordinates, s=s), graph, rois)
    rows = without_diagonal(fc) if s.authors else fc
    rows = rows if s.node_feature else torch.zeros_like(fc)
    # a degree of up to 116 beside correlations would rule the first layer
    degrees = graph.sum(-1, keepdim=True) / (rois if s.careful else 1)
    found = {
        "features": torch.cat([rows, coordinates, degrees], -1),
        "spectral": coordinates,
        "bias": looped,
    }
    return found if s.careful else {**found, "gate": edges(adj)}


def _coordinates(graph: Tensor, s: VAESettings) -> Tensor:
    """Laplacian coordinates (n, R, k).

    The authors take eigenvectors 1..k, sign of the column sum, and skip no component.
    """
    if not s.authors:
        return laplacian_coordinates(graph, s.k_pe)
    vectors = torch.linalg.eigh(laplacian(graph)).eigenvectors[..., 1 : s.k_pe + 1]
    vectors = vectors * torch.where(vectors.sum(-2, keepdim=True) < 0, -1.0, 1.0)
    return torch.nn.functional.pad(vectors, (0, s.k_pe - vectors.shape[-1]))


def init(rois: int, s: VAESettings, rng: RNG) -> Params:
    """Fresh parameters, drawn on the CPU from `rng` alone."""
    p: Params = {}

    def dense(name: str, n_in: int, n_out: int, bias: bool = True) -> None:
        linear_init(p, name, n_in, n_out, rng)
        if not bias:
            del p[f"{name}.bias"]
        elif s.authors:  # as torch.nn.Linear draws them
            p[f"{name}.bias"] = (2 * torch.rand(n_out, generator=rng) - 1) / n_in**0.5

    dense("input", rois + s.k_pe + 1, s.d_model)
    for layer in range(s.layers):
        _init_layer(p, f"layer{layer}", s, dense)
    norm_init(p, "readout.norm", s.d_model)
    dense("readout", s.d_model, s.d_model)
    dense("mu", s.d_model, s.d_z)
    dense("log_var", s.d_model, s.d_z)
    nonlinear = s.form == "paper"
    if nonlinear:
        dense("factors_hidden", s.d_z, s.d_ff)
    dense("factors", s.d_ff if nonlinear else s.d_z, rois * s.rank)
    _init_decoder(p, rois, s, rng)
    dense("head", s.d_z, 1)
    return p | {"log_sigma_y": torch.tensor(0.25).log()}


def _init_layer(
    p: Params, name: str, s: VAESettings, dense: Callable[..., None]
) -> None:
    """One block of the transformer."""
    d = s.d_model
    norm_init(p, f"{name}.norm1", d)
    dense(f"{name}.qkv", d, 3 * d, not s.authors)
    dense(f"{name}.out", d, d, not s.authors)
    norm_init(p, f"{name}.norm2", d)
    dense(f"{name}.ff1", d, s.d_ff)
    dense(f"{name}.ff2", s.d_ff, d)
    dense(f"{name}.spectral", s.k_pe, d, bias=False)
    if s.authors:
        # as `xavier_uniform_` on a (heads, k, d_head) tensor: it takes d_head for a kernel's size,
        # so that the bound is sqrt(6 / (d_head (k + heads)))
        d_head = d // s.heads
        ratio = math.sqrt(6 * s.k_pe / (d_head * (s.k_pe + s.heads)))
        p[f"{name}.spectral.weight"] *= ratio


def _init_decoder(p: Params, rois: int, s: VAESettings, rng: RNG) -> None:
    """Weights of the factors, edge baselines, noise per edge and gains."""
    p["alpha"] = 0.05 * torch.randn(s.rank, generator=rng)
    if s.careful:
        # a random offset, so that a shift of z moves edges to first order
        p["factors.weight"] *= 0.2
        p["factors.bias"] = torch.randn(rois * s.rank, generator=rng) * s.rank**-0.25
        signs = torch.tensor([1.0, -1.0]).repeat(s.rank)
        p["alpha"] = signs[: s.rank].contiguous()
    n_edges = rois * (rois - 1) // 2
    p["baseline"] = torch.zeros(N_CLASSES if s.careful else 1, n_edges)
    p["log_noise"] = torch.zeros(n_edges)
    p["gate_scale"] = torch.tensor(8.0 if s.authors else 1.0)
    if s.authors:
        for layer in range(s.layers):
            p |= {
                f"layer{layer}.gain_{bias}": torch.zeros(s.heads)
                for bias in ("lae", "sge")
            }


def _attention(
    p: Params,
    name: str,
    x: Tensor,
    inputs: dict[str, Tensor],
    s: VAESettings,
    drop: Callable[..., Tensor],
) -> Tensor:
    """Multi-head attention with scores QK'/sqrt(d) + LAE + SGE (eq. attn-score).

    SGE is a product of the same form as QK', so it is computed as extra columns of Q and K:
    [Q, Phi W] [K, Phi W]' = QK' + (Phi W)(Phi W)'.
    """
    n, rois, _ = x.shape
    d_head = s.d_model // s.heads

    def split(t: Tensor) -> Tensor:
        return t.view(n, rois, s.heads, d_head).transpose(1, 2)

    parts = linear(p, f"{name}.qkv", x).chunk(3, -1)
    q, k, v = (split(part) for part in parts)
    q = q * d_head**-0.5
    if s.sge:
        position = split(inputs["spectral"] @ p[f"{name}.spectral.weight"].T)
        gain = _gain(p, f"{name}.gain_sge", s)
        q = torch.cat([q, position * (gain * d_head**-0.5)], -1)
        k = torch.cat([k, position], -1)
    gain = _gain(p, f"{name}.gain_lae", s)
    found = []
    size = few(ATTEND_AT_ONCE, rois)  # with many ROIs nothing is larger than scores
    for some in (slice(first, first + size) for first in range(0, n, size)):
        scores = q[some] @ k[some].mT
        if s.lae:
            scores += gain * inputs["bias"][some, None]
        weights = drop(f"{name}.attention", torch.softmax(scores, -1), some)
        found.append(weights @ v[some])
    out = torch.cat(found).transpose(1, 2).reshape(n, rois, s.d_model)
    return linear(p, f"{name}.out", out)


def _gain(p: Params, name: str, s: VAESettings) -> Tensor | float:
    """Learnt factor of a bias per head (H, 1, 1), or 1."""
    return p[name].view(-1, 1, 1) if s.authors else 1.0


def dropout_masks(n: int, rois: int, s: VAESettings, rng: RNG) -> dict[str, Tensor]:
    """What dropout keeps in one training step, by place; empty without dropout."""
    if s.dropout == 0.0:
        return {}
    branch = (n, rois, s.d_model)
    if s.authors:
        attention = (n, s.heads, rois, rois)
        places = {"attention": attention, "hidden": (n, rois, s.d_ff), "ff2": branch}
    else:
        places = {"out": branch, "ff2": branch}
    masks = {}
    for layer in range(s.layers):
        for place, shape in places.items():
            drawn = torch.rand(shape, generator=rng, device=rng.device)
            masks[f"layer{layer}.{place}"] = drawn >= s.dropout
    return masks


def encode(
    p: Params,
    inputs: dict[str, Tensor],
    s: VAESettings,
    masks: dict[str, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean and log variance of q(z | FC), both (n, d_z); `masks` (`dropout_masks`) in training."""

    def drop(place: str, x: Tensor, some: slice = slice(None)) -> Tensor:
        if not masks or place not in masks:
            return x
        return x * masks[place][some] / (1.0 - s.dropout)

    x = linear(p, "input", inputs["features"])
    for layer in range(s.layers):
        name = f"layer{layer}"
        attended = _attention(p, name, norm(p, f"{name}.norm1", x), inputs, s, drop)
        x = x + drop(f"{name}.out", attended)
        hidden = torch.nn.functional.gelu(
            linear(p, f"{name}.ff1", norm(p, f"{name}.norm2", x))
        )
        hidden = drop(f"{name}.hidden", hidden)
        x = x + drop(f"{name}.ff2", linear(p, f"{name}.ff2", hidden))
    h = x.mean(1)
    if s.authors:
        h = torch.nn.functional.elu(linear(p, "readout", norm(p, "readout.norm", h)))
    else:
        h = linear(p, "readout", h)
    log_var = linear(p, "log_var", h)
    return linear(p, "mu", h), log_var if s.authors else log_var.clamp(-8.0, 4.0)


def interaction(p: Params, z: Tensor, rois: int, s: VAESettings) -> Tensor:
    """omega_e(z) = sum_r alpha_r U_ur(z) U_vr(z) for every edge, (n, p); eq. psi."""
    if s.form == "paper":  # its nonlinear g_r, whose form it does not give
        z = torch.nn.functional.gelu(linear(p, "factors_hidden", z))
    u = linear(p, "factors", z).view(z.shape[0], rois, s.rank)
    if s.authors:
        u = torch.nn.functional.normalize(u, dim=-1)
    omega = edges((u * p["alpha"]) @ u.mT)
    if s.careful:
        # The value at z = 0 belongs to the baseline.
        u0 = p["factors.bias"].view(rois, s.rank)
        omega = omega - edges((u0 * p["alpha"]) @ u0.T)
    return omega


def gate_log(p: Params, adj_edges: Tensor, s: VAESettings) -> Tensor:
    """Log sigmoid(scale A + logit epsilon): the log-rate's offset (eq. gating)."""
    scale = p["gate_scale"] if s.authors else p["gate_scale"].detach()
    logit = math.log(OPEN / (1.0 - OPEN))
    return torch.nn.functional.logsigmoid(scale * adj_edges + logit)


def latent_given_y(p: Params, y: Tensor, noise: Tensor, floor: float) -> Tensor:
    r"""Z | y in closed form from z ~ N(0, I) and y | z ~ N(b + w'z, s^2).

    .. math:: \Sigma = I - \frac{w w'}{s^2 + |w|^2}, \quad m = \frac{w (y - b)}{s^2 + |w|^2}

    by its rank-one square root, no matrix inverted.
    """
    w = p["head.weight"][0]
    b = p["head.bias"][0]
    var = p["log_sigma_y"].exp().clamp_min(floor).square()
    size = w.norm().clamp_min(1e-12)
    unit = w / size
    total = var + size.square()
    along = noise @ unit
    shift = size * (y - b) / total + ((var / total).sqrt() - 1.0) * along
    return noise + shift[:, None] * unit
