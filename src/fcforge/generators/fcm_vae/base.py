"""Base class of FCM-VAE's variants: settings, graph transformer, decoder, objective, fit.

Methods that a variant replaces are grouped at the end of the class.

Shapes: n subjects of one site, R ROIs, E = R(R-1)/2 edges, K classes, d_z latent units, k Laplacian
coordinates (eigenvectors of the graph's Laplacian, one number per ROI each). A is the binary adjacency
of a subject's FC. An argument ``p`` is the dictionary of the network's parameters.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.constants import TAU
from fcforge.core.errors import ConfigError
from fcforge.core.settings import SHARE_BELOW_ONE, above, at_least, limits
from fcforge.generators.base import RNG, FCBatch, Generator, RNGs, frozen
from fcforge.generators.coordinates import in_parts, number_at_once
from fcforge.generators.fcm_vae.training import TERMS, Terms, train
from fcforge.generators.latent import kl_per_unit
from fcforge.graphs import adjacency, binary, edges, laplacian_coordinates, n_rois_of
from fcforge.nn import layers
from fcforge.nn.resources import give_back, one_thread
from fcforge.nn.tensors import Inputs, Params, moved

# subjects whose attention scores are computed in one chunk, if they have 116 ROIs
ATTEND_AT_ONCE = 128
Drop = Callable[..., Tensor]


class Frame(NamedTuple):
    """Standardisation of a site's coordinates: what was subtracted, and the divisor.

    Attributes
    ----------
    centre, unit : Tensor, scalar
        Mean and standard deviation over all coordinates and subjects.
    start : Tensor of shape (R,)
        Mean diagonal of log FC, the first guess of decoding from off-log coordinates; zeros for
        Fisher z, which does not need it.
    """

    centre: Tensor
    unit: Tensor
    start: Tensor


class TrainedSite(NamedTuple):
    """A site, and the network that was trained on it.

    Attributes
    ----------
    batch : FCBatch
        Training subjects; samples shall have their class means.
    frame : Frame
        Standardisation of their coordinates; sampling inverts it.
    data : dict of Tensor
        What the network was trained on, from `VAE.prepare_site`.
    network : dict of Tensor
        Trained parameters.
    history : Tensor of shape (epochs, 3)
        `Terms` of every epoch.
    """

    batch: FCBatch
    frame: Frame
    data: Inputs
    network: Params
    history: Tensor


@limits(
    d_model=at_least(1),
    d_ff=at_least(1),
    heads=at_least(1),
    layers=at_least(1),
    dropout=SHARE_BELOW_ONE,
    d_z=at_least(1),
    rank=at_least(1),
    k_pe=at_least(1),
    epochs=at_least(1),
    batch_size=at_least(1),
    lr=above(0),
    clip=at_least(0),
    sigma_y_floor=at_least(0),
    beta=at_least(0),
    warmup=at_least(0),
    free_bits=at_least(0),
)
@dataclass(frozen=True)
class VAE(Generator):
    """FCM-VAE without the choices in which its variants differ.

    The encoder is a graph transformer: it maps a subject's FC to a normal distribution of latent
    variables z. The decoder predicts every edge from z. A linear head predicts the diagnosis from z,
    which makes it possible to draw z for a given diagnosis.

    Parameters
    ----------
    d_model, d_ff, heads, layers : int
        Sizes of the graph transformer: node features, hidden layer of a block, attention heads and
        blocks. The paper's size of a head, (116 + k + 1) / heads, is not an integer, so features are
        first mapped to `d_model`, as in the authors' code.
    dropout : float
        Share of activations that dropout sets to 0.
    d_z, rank, k_pe : int
        Numbers of latent units, of the decoder's factors, and of Laplacian coordinates (k).
    tau : float
        Smallest correlation that is an edge of the graph.
    epochs, batch_size : int
    lr, clip : float
        Learning rate of Adam, and bound of the gradient's norm (0: no bound).
    node_feature, lae, sge : bool
        Ablation switches: FC rows as node features, local adjacency bias and spectral bias of the
        attention (the paper's LAE and SGE).
    sigma_y_floor : float
        Lower bound of the standard deviation of the diagnosis given z.
    beta : float
        Weight of the KL divergence.
    warmup : int
        Number of epochs over which the weight grows from 0 to `beta`.
    free_bits : float
        KL divergence of a latent unit, in nats, that is not penalised.
    """

    name = "fcm_vae"

    d_model: int = 256
    d_ff: int = 512
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1
    d_z: int = 116
    rank: int = 16
    k_pe: int = 16
    tau: float = TAU
    epochs: int = 100
    batch_size: int = 8
    lr: float = 1e-3
    clip: float = 0.0
    node_feature: bool = True
    lae: bool = True
    sge: bool = True
    sigma_y_floor: float = 1e-4
    beta: float = 2.0
    warmup: int = 0
    free_bits: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % self.heads:
            raise ConfigError(
                f"d_model = {self.d_model} cannot be divided among {self.heads} heads.",
                where=self.where(),
                do="Set d_model to a multiple of heads.",
            )

    # -- the network's inputs ---------------------------------------------------------------------
    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the encoder's inputs, once per subject.

        Parameters
        ----------
        fc : Tensor of shape (n, R, R)

        Returns
        -------
        dict of Tensor
            ``features`` (n, R, R + k + 1), each ROI's FC row, Laplacian coordinates and degree;
            ``spectral`` (n, R, k), the Laplacian coordinates alone;
            ``bias`` (n, R, R), the adjacency with self-loops A + I.
        """
        adj = binary(adjacency(fc, self.tau))
        looped = adj + torch.eye(fc.shape[-1], device=fc.device)
        graph = self.graph(adj, looped)
        spectral = in_parts(self.positions, graph, fc.shape[-1])
        rows = self.node_rows(fc) if self.node_feature else torch.zeros_like(fc)
        features = torch.cat([rows, spectral, self.degrees(graph)], -1)
        return {"features": features, "spectral": spectral, "bias": looped}

    # -- the encoder ------------------------------------------------------------------------------
    def init(self, rois: int, rng: RNG) -> Params:
        """Draw the parameters of an untrained network for `rois` ROIs, on the CPU."""
        # The features of `prepare`: a row of FC, Laplacian coordinates and the degree.
        params = self.init_dense(rng, "input", rois + self.k_pe + 1, self.d_model)
        for layer in range(self.layers):
            params |= self.init_block(rng, f"layer{layer}")
        params |= self.init_readout(rng)
        params |= self.init_dense(rng, "mu", self.d_model, self.d_z)
        params |= self.init_dense(rng, "log_var", self.d_model, self.d_z)
        params |= self.init_decoder(rng, rois)
        params |= self.init_dense(rng, "head", self.d_z, 1)
        return params | {"log_sigma_y": torch.tensor(0.25).log()}

    def init_block(self, rng: RNG, name: str) -> Params:
        """Draw the parameters of one block of the transformer, whose names begin with `name`."""
        d = self.d_model
        bias = self.attention_bias
        params = layers.init_norm(f"{name}.norm1", d)
        params |= layers.init_linear(rng, f"{name}.qkv", d, 3 * d, bias=bias)
        params |= layers.init_linear(rng, f"{name}.out", d, d, bias=bias)
        params |= layers.init_norm(f"{name}.norm2", d)
        params |= self.init_dense(rng, f"{name}.ff1", d, self.d_ff)
        params |= self.init_dense(rng, f"{name}.ff2", self.d_ff, d)
        return params | layers.init_linear(
            rng, f"{name}.spectral", self.k_pe, d, bias="none"
        )

    def init_dense(self, rng: RNG, name: str, n_in: int, n_out: int) -> Params:
        """Draw a linear layer from `n_in` to `n_out` features; the variant decides how biases start."""
        return layers.init_linear(rng, name, n_in, n_out, bias=self.dense_bias)

    def encode(
        self, p: Params, inputs: Inputs, masks: Params | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the parameters of the normal distribution q(z | FC) of every subject.

        Parameters
        ----------
        p : dict of Tensor
        inputs : dict of Tensor
            From `prepare`.
        masks : dict of Tensor, optional
            From `dropout_masks`; only in training.

        Returns
        -------
        mean : Tensor of shape (n, d_z)
        log_var : Tensor of shape (n, d_z)
            Logarithm of the variance.
        """

        def drop(place: str, x: Tensor, rows: slice = slice(None)) -> Tensor:
            """Apply dropout to the activations `x` at a place of the network."""
            if not masks or place not in masks:
                return x
            return x * masks[place][rows] / (1.0 - self.dropout)

        x = layers.affine(p, "input", inputs["features"])
        for layer in range(self.layers):
            name = f"layer{layer}"
            normed = layers.layer_norm(p, f"{name}.norm1", x)
            x = x + drop(f"{name}.out", self.attend(p, name, normed, inputs, drop))
            normed = layers.layer_norm(p, f"{name}.norm2", x)
            hidden = drop(
                f"{name}.hidden", F.gelu(layers.affine(p, f"{name}.ff1", normed))
            )
            x = x + drop(f"{name}.ff2", layers.affine(p, f"{name}.ff2", hidden))
        h = self.read_out(p, x.mean(1))
        log_var = self.bounded(layers.affine(p, "log_var", h))
        return layers.affine(p, "mu", h), log_var

    def attend(
        self, p: Params, name: str, x: Tensor, inputs: Inputs, drop: Drop
    ) -> Tensor:
        """Apply multi-head attention with two biases (the paper's equation attn-score).

        The scores are QK'/sqrt(d) + LAE + SGE. The local bias LAE is A + I. The spectral bias SGE is
        the product (Phi W)(Phi W)' of the Laplacian coordinates Phi with a learned map W. It has the
        form of QK', so it is computed as extra columns of Q and K:
        [Q, Phi W] [K, Phi W]' = QK' + (Phi W)(Phi W)'.

        Parameters
        ----------
        p : dict of Tensor
        name : str
            Name of the block, with which its parameters' names begin.
        x : Tensor of shape (n, R, d_model)
            Node features.
        inputs : dict of Tensor
            From `prepare`.
        drop : callable
            Applies dropout, given a place, activations and a slice of subjects.

        Returns
        -------
        Tensor of shape (n, R, d_model)
        """
        n, rois, _ = x.shape
        d_head = self.d_model // self.heads

        def split(t: Tensor) -> Tensor:
            """Reshape (n, R, d_model) to (n, heads, R, d_head)."""
            return t.view(n, rois, self.heads, d_head).transpose(1, 2)

        parts = layers.affine(p, f"{name}.qkv", x).chunk(3, -1)
        q, k, v = (split(part) for part in parts)
        q = q * d_head**-0.5
        if self.sge:
            position = split(layers.affine(p, f"{name}.spectral", inputs["spectral"]))
            sge_gain = self.gain(p, f"{name}.gain_sge")
            q = torch.cat([q, position * (sge_gain * d_head**-0.5)], -1)
            k = torch.cat([k, position], -1)
        lae_gain = self.gain(p, f"{name}.gain_lae")
        mixed = []
        # in chunks of subjects, because with many ROIs the scores take most memory
        size = number_at_once(ATTEND_AT_ONCE, rois)
        for rows in (slice(first, first + size) for first in range(0, n, size)):
            scores = q[rows] @ k[rows].mT
            if self.lae:
                scores += lae_gain * inputs["bias"][rows, None]
            weights = drop(f"{name}.attention", torch.softmax(scores, -1), rows)
            mixed.append(weights @ v[rows])
        joined = torch.cat(mixed).transpose(1, 2).reshape(n, rois, self.d_model)
        return layers.affine(p, f"{name}.out", joined)

    def dropout_masks(self, n: int, rois: int, rng: RNG) -> Params:
        """Draw which activations dropout keeps in one step.

        Parameters
        ----------
        n, rois : int
            Numbers of subjects and ROIs.
        rng : torch.Generator

        Returns
        -------
        dict of Tensor
            Masks by the place in the network; empty without dropout.
        """
        if self.dropout == 0.0:
            return {}
        masks = {}
        for layer in range(self.layers):
            for place, shape in self.dropout_places(n, rois).items():
                drawn = torch.rand(shape, generator=rng, device=rng.device)
                masks[f"layer{layer}.{place}"] = drawn >= self.dropout
        return masks

    # -- the objective ----------------------------------------------------------------------------
    def negative_elbo(
        self,
        p: Params,
        batch: Inputs,
        noise: Tensor,
        masks: Params,
        beta: float | Tensor,
    ) -> tuple[Tensor, Terms]:
        """Return the loss of a batch: minus the supervised ELBO (the paper's equation elbo).

        Parameters
        ----------
        p : dict of Tensor
        batch : dict of Tensor
            The result of `prepare`, standardised coordinates ``target`` (n, E), diagnoses ``y`` (n,)
            and ``weight`` (n,): 1 for subjects that count, 0 for those that only fill the batch.
        noise : Tensor of shape (n, d_z)
            Standard normal; z = mean + standard deviation * noise.
        masks : dict of Tensor
            From `dropout_masks`.
        beta : float
            Weight of the KL divergence.

        Returns
        -------
        loss : Tensor, scalar
        terms : Terms
            Its terms, without their weights.
        """
        y = batch["y"]
        weight = batch["weight"]

        def mean(x: Tensor) -> Tensor:
            """Average over the subjects that count."""
            return weight @ x / weight.sum().clamp_min(1.0)

        mu, log_var = self.encode(p, batch, masks)
        z = mu + (0.5 * log_var).exp() * noise
        predicted = self.decode(p, z, batch)
        reconstruction = mean(self.reconstruction_nll(p, batch["target"], predicted))
        label = mean(self.label_nll(p, self.label_input(mu, z), y.to(z.dtype)))
        units = mean(kl_per_unit(mu, log_var))
        # Free bits: a unit that costs less than the allowance is not pushed down further.
        cost = units.clamp_min(self.free_bits).sum()
        loss = reconstruction + label + beta * cost
        return loss, Terms(reconstruction, label, units.sum())

    def label_nll(self, p: Params, z: Tensor, y: Tensor) -> Tensor:
        """Return the negative log-likelihood of diagnoses y (n,) given z (n, d_z), up to a constant.

        The diagnosis is N(b + w'z, sigma_y^2), with b and w the parameters of the linear head.
        """
        sigma = p["log_sigma_y"].exp().clamp(self.sigma_y_floor, 10.0)
        error = (y - layers.affine(p, "head", z)[:, 0]) / sigma
        return 0.5 * error.square() + sigma.log()

    def kl_weight(self, epoch: int) -> float:
        """Return the weight of the KL divergence in an epoch, counted from 0.

        It grows over the first `warmup` epochs and is `beta` from then on.
        """
        if not self.warmup:
            return self.beta
        return self.beta * min(1.0, (epoch + 1) / self.warmup)

    def interaction(self, p: Params, z: Tensor, rois: int) -> Tensor:
        """Return the decoder's interaction of ROIs for every edge (the paper's equation psi).

        For an edge e of ROIs u and v it is omega_e(z) = sum_r alpha_r U_ur(z) U_vr(z).

        Parameters
        ----------
        p : dict of Tensor
        z : Tensor of shape (n, d_z)
        rois : int

        Returns
        -------
        Tensor of shape (n, E)
        """
        u = self.factors(p, z).view(z.shape[0], rois, self.rank)
        return self.centred(p, edges((u * p["alpha"]) @ u.mT))

    def interactions(self, p: Params, z: Tensor) -> Tensor:
        """Return `interaction` of any number of subjects, in chunks if they have many ROIs."""
        rois = n_rois_of(p["baseline"].shape[1])
        return in_parts(lambda part: self.interaction(p, part, rois), z, rois)

    def encode_all(self, p: Params, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Return `encode` of any number of subjects, in chunks if they have many ROIs."""
        n, rois, _ = inputs["features"].shape

        def encode_rows(rows: Tensor) -> Tensor:
            """Return means and log variances (b, 2, d_z) of the subjects in `rows` (b,)."""
            part = {k: inputs[k][rows] for k in ("features", "spectral", "bias")}
            return torch.stack(self.encode(p, part), 1)

        mu, log_var = in_parts(encode_rows, torch.arange(n), rois).unbind(1)
        return mu.contiguous(), log_var.contiguous()

    # -- fit --------------------------------------------------------------------------------------
    def learn_lanes(self, batches: Sequence[FCBatch], rngs: RNGs) -> list[Any]:
        """Train one network for every site and prepare it for sampling.

        On a GPU the networks train together. The work before and after runs in threads, a site each,
        on the CPU, so that its random numbers are the same on every device.
        """
        # The device of the training and of the result.
        home = batches[0].fc.device
        batches = [FCBatch(batch.fc.cpu(), batch.y.cpu()) for batch in batches]
        with one_thread(), ThreadPoolExecutor() as pool:
            frames, sites = zip(*pool.map(self.prepare_site, batches), strict=True)
        on_device = [moved(site, home) for site in sites]
        trained, histories = train(self, on_device, rngs)
        give_back()
        networks = [frozen(moved(p, "cpu")) for p in trained]
        with one_thread(), ThreadPoolExecutor() as pool, torch.no_grad():
            done = map(TrainedSite, batches, frames, sites, networks, histories)
            models = list(pool.map(self.finish, done, rngs))
        return [pytree.tree_map(lambda x: x.to(home), model) for model in models]

    def prepare_site(self, batch: FCBatch) -> tuple[Frame, Inputs]:
        """Standardise a site's coordinates and prepare its subjects for training.

        Parameters
        ----------
        batch : FCBatch
            The site's training subjects.

        Returns
        -------
        frame : Frame
            The standardisation.
        site : dict of Tensor
            The result of `prepare`, diagnoses ``y`` (n,) and standardised coordinates ``target``
            (n, E).
        """
        x, start = self.coordinates(batch.fc)
        frame = Frame(x.mean(), x.std().clamp_min(1e-6), start)
        target = (x - frame.centre) / frame.unit
        return frame, {**self.prepare(batch.fc), "y": batch.y, "target": target}

    def initial_params(self, site: Inputs, rng: RNG) -> Params:
        """Draw the parameters before the first step, on the CPU; the baselines of edges are 0.

        Parameters
        ----------
        site : dict of Tensor
            From `prepare_site`.
        rng : torch.Generator
        """
        return self.init(site["features"].shape[1], rng)

    def latent_means(self, model: Any, fc: Tensor) -> Tensor:
        """Return the means (n, d_z) of q(z | FC) for FC matrices (n, R, R)."""
        return self.encode_all(model.network, self.prepare(fc))[0]

    def history(self, model: Any) -> dict[str, Tensor]:
        """Return the `Terms` of the loss in every epoch, by name, each of shape (epochs,)."""
        return dict(zip(TERMS, model.history.unbind(-1), strict=True))

    def reconstruct(self, model: Any, fc: Tensor) -> Tensor:
        """Return FC (n, R, R) decoded from the encoder's mean of z for each subject of `fc`."""
        inputs = self.prepare(fc)
        mu, _ = self.encode_all(model.network, inputs)
        # The class baseline of the decoder needs a diagnosis: the one that the head predicts.
        y = (layers.affine(model.network, "head", mu)[:, 0] > 0.5).long()
        decoded = self.decode(model.network, mu, {**inputs, "y": y})
        frame = model.frame
        return self.to_fc(decoded * frame.unit + frame.centre, frame.start)

    # -- choices of a variant ---------------------------------------------------------------------
    dense_bias: ClassVar[Literal["uniform", "zero"]] = "zero"
    attention_bias: ClassVar[Literal["zero", "none"]] = "zero"

    def graph(self, adj: Tensor, looped: Tensor) -> Tensor:
        """Return the graph (n, R, R) whose degrees and Laplacian are used.

        Parameters
        ----------
        adj : Tensor of shape (n, R, R)
            Binary adjacency A.
        looped : Tensor of shape (n, R, R)
            Adjacency with self-loops, A + I.
        """
        return adj

    def positions(self, graph: Tensor) -> Tensor:
        """Return Laplacian coordinates (n, R, k), without the eigenvectors of eigenvalue 0."""
        return laplacian_coordinates(graph, self.k_pe)

    def node_rows(self, fc: Tensor) -> Tensor:
        """Return FC rows (n, R, R) as node features."""
        return fc

    def degrees(self, graph: Tensor) -> Tensor:
        """Return the degree of every ROI, (n, R, 1)."""
        return graph.sum(-1, keepdim=True)

    def gain(self, p: Params, name: str) -> Tensor | float:
        """Return the factor of an attention bias, whose parameter would be `name`; here 1."""
        return 1.0

    def dropout_places(self, n: int, rois: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of what dropout masks in a block, by the place in the network.

        Here these are the outputs of its two branches, attention and feed-forward layers.
        """
        branch = (n, rois, self.d_model)
        return {"out": branch, "ff2": branch}

    def init_readout(self, rng: RNG) -> Params:
        """Draw the parameters of the readout."""
        return self.init_dense(rng, "readout", self.d_model, self.d_model)

    def read_out(self, p: Params, h: Tensor) -> Tensor:
        """Map the mean h (n, d_model) of a graph's node features to features of the graph."""
        return layers.affine(p, "readout", h)

    def bounded(self, log_var: Tensor) -> Tensor:
        """Clip the log variance to [-8, 4], so that the first steps do not overflow."""
        return log_var.clamp(-8.0, 4.0)

    def factors(self, p: Params, z: Tensor) -> Tensor:
        """Return the decoder's factors U(z) (n, R * rank) of the ROIs."""
        return layers.affine(p, "factors", z)

    def centred(self, p: Params, omega: Tensor) -> Tensor:
        """Return the interactions omega (n, E); a variant may subtract their value at z = 0."""
        return omega

    def label_input(self, mu: Tensor, z: Tensor) -> Tensor:
        """Return the input of the head that predicts the diagnosis: the draw z, not its mean mu."""
        return z

    @abstractmethod
    def init_decoder(self, rng: RNG, rois: int) -> Params:
        """Draw the decoder: map to the factors, their weights ``alpha``, edges' ``baseline``."""

    @abstractmethod
    def coordinates(self, fc: Tensor) -> tuple[Tensor, Tensor]:
        """Return the coordinates (n, E) of FC that are modelled, and `Frame.start` (R,)."""

    @abstractmethod
    def to_fc(self, x: Tensor, start: Tensor) -> Tensor:
        """Map coordinates x (n, E) back to FC (n, R, R); `start` is `Frame.start`."""

    @abstractmethod
    def decode(self, p: Params, z: Tensor, batch: Inputs) -> Tensor:
        """Return predicted standardised coordinates (n, E) from latent variables z (n, d_z).

        Parameters
        ----------
        p : dict of Tensor
        z : Tensor of shape (n, d_z)
        batch : dict of Tensor
            As for `negative_elbo`; not every variant reads it.
        """

    @abstractmethod
    def reconstruction_nll(
        self, p: Params, target: Tensor, predicted: Tensor
    ) -> Tensor:
        """Return the negative log-likelihood of each subject's coordinates (n,), up to a constant.

        Parameters
        ----------
        p : dict of Tensor
        target : Tensor of shape (n, E)
            Standardised coordinates.
        predicted : Tensor of shape (n, E)
            From `decode`.
        """

    @abstractmethod
    def finish(self, site: TrainedSite, rng: RNG) -> Any:
        """Make the state of a trained network, from which subjects of a diagnosis can be drawn.

        Parameters
        ----------
        site : TrainedSite
        rng : torch.Generator
            For a variant that draws trial samples to adjust its state to the training subjects.

        Returns
        -------
        NamedTuple
            An instance of `state_type`.
        """


def active_units(mu: Tensor) -> Tensor:
    """Count the latent units that are used: the variance of their mean over subjects exceeds 0.01.

    Parameters
    ----------
    mu : Tensor of shape (n, d_z)
        Means of q(z | FC).

    Returns
    -------
    Tensor, scalar

    References
    ----------
    Burda et al., Importance weighted autoencoders, 2016.
    """
    return (mu.var(0) > 0.01).sum()
