r"""FORGE from releases: each hospital gives q + 2 noisy numbers around a public start.

The consortium begins with the public head. A site adds its release (`fcforge.releases.vector`) to
the sum and the head is solved anew:

.. math:: c \leftarrow c + \sum_{i \in site} \mathrm{clip}(u_i r_i) + noise, \qquad
          w = w_0 + A\,\bigl(n G + \lambda I + \tfrac{\lambda V}{n} G^{-1}\bigr)^{-1} c.

Any order of the sites ends in the same head. No subject, real or synthetic, is kept; synthetic
subjects for any other model are drawn from the same numbers by the generator ``released``. The
public head alone says what the hospitals added.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fcforge.errors import ConfigError
from fcforge.methods.base import Lane, Method, Model, Params, PublicView, SiteView
from fcforge.methods.shared.ridge import linear_head
from fcforge.privacy.accounting import DELTA, EPSILON
from fcforge.privacy.seeded_noise import Noise, experiment_noise
from fcforge.randomness import numpy_rng
from fcforge.releases import vector
from fcforge.releases.features import log_features
from fcforge.releases.start import Start
from fcforge.settings import Fraction, Positive


def head_params(start: Start, beta: Tensor) -> Params:
    """Linear model on raw features whose two logits differ by the calibrated log odds."""
    solution = vector.on_features(start, vector.head(start, beta.cpu().numpy()))
    half = 0.5 / start.temperature
    weight = torch.from_numpy(half * solution.weight)
    found = linear_head(weight, weight.new_tensor(half * solution.bias))
    return {name: value.to(beta.device) for name, value in found.items()}


@dataclass(frozen=True)
class PublicHead(Method):
    """Ridge on the public people, which everybody begins with; no site changes it."""

    name = "public_head"
    title = "Public head alone"
    source = "reference: what a start is worth by itself"
    depends_on = "set"
    fits = False
    from_public = "head"
    needs_start = True
    models = ("linear",)

    def check_model(self, model: Model) -> None:
        """A start speaks about the whole matrix logarithm."""
        if getattr(model, "features", "") != "log+diagonal":
            raise ConfigError(
                "a start speaks about the whole matrix logarithm of the FC.",
                where=self.where(),
                do="Set model = {name = 'linear', features = 'log+diagonal'}.",
            )

    def learn_public(self, model: Model, lane: Lane, public: PublicView) -> Lane:
        """Take the head of the start."""
        like = lane.params["head.0.weight"]
        nothing = like.new_zeros(public.start.n_axes + 1, dtype=torch.float64)
        return lane._replace(params=head_params(public.start, nothing))


@dataclass(frozen=True)
class ForgeRelease(PublicHead):
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
    epsilon: Positive = EPSILON
    delta: Fraction = DELTA
    noise: Noise = "secret"

    name = "forge_release"
    title = "FORGE from releases"
    source = "a public start and the Gaussian mechanism"
    keeps = "statistics"
    from_public = "head and axes"

    def learn_public(self, model: Model, lane: Lane, public: PublicView) -> Lane:
        """No release yet: the public head."""
        total = lane.params["head.0.weight"].new_zeros(
            public.start.n_axes + 2, dtype=torch.float64
        )
        zero = total.new_zeros(())
        state = {"release.sum": total, "release.variance": zero, "release.count": zero}
        return super().learn_public(model, lane._replace(state=state), public)

    def end_site(
        self, model: Model, lane: Lane, site: SiteView, rng: torch.Generator
    ) -> Lane:
        """Add the site's release and solve again."""
        start = site.start
        epsilon = self.epsilon if self.mechanism == "gaussian" else None
        features = log_features(site.fc.cpu().numpy(), start.shrink)
        own = numpy_rng(site.seed, "release", site.name)
        drawn = experiment_noise(self.noise, vector.UNIT, start.n_axes + 2, own)
        given = vector.release_vector(
            start, features, site.y.cpu().numpy(), epsilon, self.delta, drawn
        )
        was = lane.state
        total = was["release.sum"] + torch.from_numpy(given).to(was["release.sum"])
        noise = vector.noise_sd(start, epsilon, self.delta) ** 2
        variance = was["release.variance"] + noise
        count = was["release.count"] + 1.0
        beta = vector.solve(start, total.cpu().numpy(), float(variance), float(count))
        state = {
            "release.sum": total,
            "release.variance": variance,
            "release.count": count,
        }
        step = torch.from_numpy(beta).to(total)
        return Lane(head_params(start, step), lane.stats, state)
