r"""FORGE from releases: each hospital gives q + 2 noisy numbers around a public start.

The consortium begins with the public head. A site adds its release (`fcforge.releases.vector`) to
the sum and the head is solved anew:

.. math:: c \leftarrow c + \sum_{i \in site} \mathrm{clip}(u_i r_i) + noise, \qquad
          w = w_0 + A\,\bigl(n G + \lambda I + \tfrac{\lambda V}{n} G^{-1}\bigr)^{-1} c.

Any order of the sites ends in the same head. No subject, real or synthetic, is kept; synthetic
subjects for any other model are drawn from the same numbers by the generator ``released``.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from fcforge.methods.base import Lane, Method, Model, PublicView, SiteView
from fcforge.methods.shared.public import head_params, require_log_features
from fcforge.privacy.mechanisms import Noise, epsilon_of, secret_rng
from fcforge.releases import vector
from fcforge.settings import Fraction, Positive


@dataclass(frozen=True)
class ForgeRelease(Method):
    """The head of a consortium from a public start and one short release per site.

    Parameters
    ----------
    mechanism : {"gaussian", "none"}
        Noise for (epsilon, delta), or the exact sums.
    epsilon, delta : float
        Budget of every person (add or remove one).
    noise : {"secret", "seeded"}
        "seeded" makes experiments repeatable and gives no guarantee: who knows the seed
        subtracts the noise.
    """

    mechanism: Literal["gaussian", "none"] = "gaussian"
    epsilon: Positive = 1.0
    delta: Fraction = 1e-3
    noise: Noise = "secret"

    name = "forge_release"
    title = "FORGE from releases"
    source = "a public start and the Gaussian mechanism"
    keeps = "statistics"
    depends_on = "set"
    fits = False
    from_public = "head and axes"
    needs_start = True
    models = ("linear",)

    def check_model(self, model: Model) -> None:
        """A start speaks about the whole matrix logarithm."""
        require_log_features(self.where(), model)

    def learn_public(
        self, model: Model, lane: Lane, public: PublicView, rng: torch.Generator
    ) -> Lane:
        """No release yet: the public head."""
        device = lane.params["head.0.weight"].device
        zero = torch.zeros((), dtype=torch.float64, device=device)
        total = torch.zeros(public.start.n_axes + 2, dtype=torch.float64, device=device)
        state = {"release.sum": total, "release.variance": zero, "release.count": zero}
        return lane._replace(params=head_params(public.start, total[:-1]), state=state)

    def end_site(self, model: Model, lane: Lane, site: SiteView, rng: torch.Generator) -> Lane:
        """Add the site's release and solve again."""
        start = site.start
        epsilon = epsilon_of(self.mechanism, self.epsilon)
        features = site.inputs(model)["edges"].double().cpu()
        own = secret_rng(self.noise, site.rng("release"))
        given = vector.release_vector(start, features, site.y.cpu(), epsilon, self.delta, own)
        was = lane.state
        state = {
            "release.sum": was["release.sum"] + given.to(was["release.sum"]),
            "release.variance": was["release.variance"]
            + vector.noise_sd(start, epsilon, self.delta) ** 2,
            "release.count": was["release.count"] + 1.0,
        }
        total, variance, count = (v.cpu() for v in state.values())
        beta = vector.solve(start, total, variance, count).to(was["release.sum"])
        return Lane(head_params(start, beta), lane.stats, state)
