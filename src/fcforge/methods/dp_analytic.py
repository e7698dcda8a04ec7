r"""Differentially private ridge from noisy sufficient statistics.

Every site releases :math:`M = \sum_i a_i a_i^\top + \text{noise}`, a_i = [1, x_i, t_i] with x_i a
few fixed projections of the edges, clipped, and t the label as -1 or +1. Sites share nobody, so
each person's guarantee is that of their own site, however many sites follow. Whatever is computed
from M (weights, the network, everything after) is covered by it.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.graphs import centre_edges
from fcforge.methods.base import Declared, Inputs, Lane, Method, Model, SiteView
from fcforge.methods.shared import ridge
from fcforge.privacy import mechanisms as privacy
from fcforge.randomness import torch_rng
from fcforge.settings import Fraction, NotNegative, Positive, Size

# [1, x, t] enter with weights (h, 1, h): h^2 = 1/2 is where X't has the least relative noise.
SIDE = math.sqrt(0.5)


@dataclass(frozen=True)
class DPAnalytic(Method):
    """Ridge whose statistics carry (epsilon, delta) differential privacy.

    Parameters
    ----------
    epsilon, delta : float
        Budget of every person (add or remove one).
    clip : float
        Bound on the length of the projected edges, relative to sqrt(projection).
    projection : int
        Number of projected edges k: the noise grows with it.
    public : str
        Template of people outside the study (`fcforge.privacy.template`): its leading axes are
        the projection. Without one, a fixed random projection.
    penalty : float
        Ridge penalty per person, in units of a projected edge's variance.
    noise : {"secret", "seeded"}
        "seeded" makes experiments repeatable and gives no guarantee (state "secret" is 0):
        who knows the seed subtracts the noise.
    """

    epsilon: Positive = 8.0
    delta: Fraction = privacy.DELTA
    clip: Positive = 1.5
    projection: Size = 16
    public: str = ""
    penalty: NotNegative = 1.0
    noise: privacy.Noise = "secret"

    name = "dp_analytic"
    title = "Analytic ridge, differentially private"
    source = "Gaussian mechanism on sufficient statistics"
    keeps = "statistics"
    depends_on = "order"
    fits = False
    from_public = ""
    models = ("linear",)

    def check_model(self, model: Model) -> None:
        """ROI strength is taken out of plain edges alone."""
        ridge.require_plain_edges(self.where(), model, "Set features = 'z'.")

    def _basis(self, n_edges: int) -> tuple[Tensor, Tensor]:
        """Mean (p,) and projection (p, k), both public: equal at every hospital."""
        if self.public:
            names = ("edge_mean", "edge_axes", "edge_spread")
            mean, axes, spread = privacy.read_template(
                self.public, names, n_edges
            ).values()
            return mean.double(), (axes / spread[:, None])[
                : self.projection
            ].mT.double()
        rng = torch_rng(0, "dp projection", n_edges, self.projection)
        basis = torch.randn(
            n_edges, self.projection, generator=rng, dtype=torch.float64
        )
        # an edge (Fisher z over 0.2) has about unit spread: so has each projection
        return torch.zeros(n_edges, dtype=torch.float64), basis / math.sqrt(n_edges)

    @property
    def _bound(self) -> float:
        return self.clip * math.sqrt(self.projection)

    @property
    def _sigma(self) -> float:
        return privacy.gaussian_sigma(self.epsilon, self.delta)

    def statistics_rows(self, model: Model, inputs: Inputs, y: Tensor) -> Tensor:
        """Rows [1, x, t], x the clipped projections (n, k) of the edges."""
        edges = inputs["edges"].double()
        mean, basis = self._basis(edges.shape[1])
        x = (centre_edges(edges) - mean.to(edges)) @ basis.to(edges)
        return ridge.moment_rows(privacy.clip_rows(x, self._bound), y)

    def start(self, model: Model, lane: Lane, rng: torch.Generator) -> Lane:
        """Nobody's statistics."""
        q = self.projection + 2
        zero = torch.zeros((), dtype=torch.float64)
        state = dict.fromkeys(("noise", "epsilon", "secret"), zero)
        state["moments"] = torch.zeros(q, q, dtype=torch.float64)
        device = lane.params["head.0.weight"].device
        return lane._replace(state={k: v.to(device) for k, v in state.items()})

    def declares(self, model: Model, lane: Lane, sites: int) -> dict[str, Declared]:
        """Noisy moments; budget and noise are those that the settings say, and no others."""
        found = super().declares(model, lane, sites)
        said = {"epsilon": self.epsilon, "secret": float(self.noise == "secret")}
        sd = (
            math.sqrt(2 * sites)
            * privacy.gaussian_sigma(self.epsilon, self.delta)
            * self._bound**2
        )
        found["noise"] = found["noise"]._replace(
            low=sd * (1 - 1e-9), high=sd * (1 + 1e-9)
        )
        return found | {k: found[k]._replace(low=v, high=v) for k, v in said.items()}

    def end_site(
        self, model: Model, lane: Lane, site: SiteView, rng: torch.Generator
    ) -> Lane:
        """Add the site's noisy statistics and solve again."""
        rows = self.statistics_rows(model, site.inputs(model), site.y)
        unit = torch.full_like(rows[0], self._bound)
        unit[0] = unit[-1] = 1 / SIDE
        rng = privacy.secret_rng(self.noise, rng)
        # |row / unit|^2 <= 1/2 + 1 + 1/2
        found = privacy.noisy_moments(rows / unit, math.sqrt(2.0), self._sigma, rng)
        moments = lane.state["moments"] + found * torch.outer(unit, unit)
        noise = torch.sqrt(
            lane.state["noise"] ** 2 + 2 * (self._sigma * self._bound**2) ** 2
        )
        weight, bias = ridge.private_ridge(moments, float(noise), self.penalty)
        state = {
            "moments": moments,
            "noise": noise,
            "epsilon": torch.full_like(noise, self.epsilon),
            "secret": torch.full_like(noise, float(self.noise == "secret")),
        }
        mean, basis = (
            b.to(weight) for b in self._basis(lane.params["head.0.weight"].shape[1])
        )
        on_edges = basis @ weight
        head = ridge.linear_head(
            centre_edges(on_edges[None])[0], bias - mean @ on_edges
        )
        return Lane(head, lane.stats, state)
