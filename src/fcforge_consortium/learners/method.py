r"""FORGE from releases: each hospital gives one noisy sum around a public start.

The consortium begins with the public head. A site adds the contributions of its people
(`fcforge.base_model.contributions`) to the sum, and the head is solved anew from the sum with its noise.
Who adds the noise is a matter of trust: every site by itself (``form = "local"``), or two keepers
once over all sites (``form = "sum"``), neither of whom sees a site's numbers; each of the two adds
a full dose, so that one honest keeper is enough.

Any order of the sites ends in the same head. No subject, real or synthetic, is kept; synthetic
subjects for any other model are drawn from the same numbers by the generator ``released``. The
public head alone says what the hospitals added.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from fcforge.base_model import contributions as vector
from fcforge.base_model.calibration import vertices
from fcforge.base_model.expected_gain import noise_per_person
from fcforge.base_model.start import Start
from fcforge.core.errors import ConfigError
from fcforge.core.randomness import numpy_rng
from fcforge.core.settings import at_least, limits
from fcforge.methods.base import (
    EVERY,
    Lane,
    Method,
    Model,
    Params,
    PublicView,
    SiteView,
)
from fcforge.methods.shared.ridge import linear_head
from fcforge.models.edge import WHOLE_LOG
from fcforge_consortium.learners.generator import SumNoise, contributed


def head_params(
    start: Start, beta: np.ndarray, device: torch.device, n_outputs: int = 2
) -> Params:
    """Linear model on raw features: calibrated logits of the classes, or a number."""
    found = vector.head(start, beta)
    solution = vector.on_features(start, found)
    half = 0.5 / vector.temperature(start, found) if n_outputs > 1 else 1.0
    scores = np.concatenate([solution.weight, np.asarray(solution.bias)[None]])
    scores = half * scores.reshape(len(scores), -1)
    if n_outputs > 2:
        scores = scores @ vertices(n_outputs).T
    head = torch.from_numpy(scores)
    params = linear_head(head[:-1], head[-1], n_outputs)
    return {name: value.to(device) for name, value in params.items()}


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
    features = WHOLE_LOG
    learns = EVERY

    def check_model(self, model: Model) -> None:
        """A start speaks about the whole matrix logarithm."""
        if getattr(model, "features", "") != self.features:
            raise ConfigError(
                "a start speaks about the whole matrix logarithm of the FC.",
                where=self.where(),
                do="Leave the model's features out: that is its default.",
            )

    def learn_public(self, model: Model, lane: Lane, public: PublicView) -> Lane:
        """Take the head of the start."""
        start = public.start
        nothing = vector.solve(start, np.zeros(start.n_numbers), 0.0)
        params = head_params(start, nothing, lane.device, model.n_outputs)
        return lane._replace(params=params)


@limits(people=at_least(1), hospitals=at_least(1))
@dataclass(frozen=True)
class ForgeRelease(SumNoise, PublicHead):
    """The head of a consortium from a public start and the sum of what its sites give.

    Parameters
    ----------
    people, hospitals : int
        Planned in all: the louder the noise per person, the fewer directions are spoken of.
    form : {"sum", "local"}
        Noise by two keepers once over all sites so far, or by every site itself.
    **settings
        Those of `fcforge_consortium.learners.generator.SumNoise`.
    """

    people: int = 600
    hospitals: int = 10
    form: Literal["sum", "local"] = "sum"

    name = "forge_release"
    title = "FORGE from releases"
    source = "a public start and the discrete Gaussian mechanism"
    keeps = "statistics"
    from_public = "head and axes"

    def learn_public(self, model: Model, lane: Lane, public: PublicView) -> Lane:
        """No release yet: the public head."""
        size = public.start.n_numbers
        total = torch.zeros(size, dtype=torch.float64, device=lane.device)
        begun = {"release.sum": total, "release.count": total.new_zeros(())}
        return super().learn_public(model, lane.holding(begun), public)

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Add what the site's people contribute and solve again.

        Sums are whole numbers far below 2^53: float64 holds them exactly.
        """
        assert site.public is not None  # no learner without a start is built
        start = site.public.start
        given = contributed(start, site.fc, site.y)
        if self.form == "local":
            own = numpy_rng(site.seed, "release", site.name)
            given = given + self.drawn(len(given), 1, own)
        before = lane.state["release.sum"]
        total = before + torch.from_numpy(given).to(before)
        counted = lane.state["release.count"] + 1.0
        count = int(counted)
        noisy = total.cpu().numpy()
        doses = count
        if self.form == "sum":
            doses = vector.DOSES
            together = numpy_rng(site.seed, "round", count)
            noisy = noisy + self.drawn(len(noisy), doses, together)
        beta = vector.solve(start, noisy, float(doses * self.units**2), count)
        params = head_params(start, beta, total.device, model.n_outputs)
        held = {"release.sum": total, "release.count": counted}
        return lane._replace(params=params).holding(held)

    @property
    def start_noise(self) -> float:
        """The noise per person that is planned."""
        doses = vector.DOSES if self.form == "sum" else self.hospitals
        return noise_per_person(self.people, self.limit, doses, self.delta)
