r"""Method ``contributions``: each hospital adds one noisy contribution to a base model.

The consortium begins with the base model of the public subjects. A site adds the contributions of
its subjects (`fcforge_consortium.base_model.vectors`) to the sum, and the model is solved anew
from the sum with its noise. Either every site adds noise to its own contribution
(``form = "local"``), or two aggregators add it once to the sum over all sites (``form = "sum"``).
Neither aggregator sees a site's numbers; each adds a full dose, so that one honest aggregator is
enough.

Any order of the sites ends in the same model. No subject, real or synthetic, is kept; the generator
``contributed`` draws synthetic subjects for any other model from the same numbers. The method
``base_model_alone`` is the base model alone, which shows what the hospitals added.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch

from fcforge.base_model.calibration import vertices
from fcforge.base_model.public_subjects import PublicSubjects
from fcforge.core.errors import ConfigError
from fcforge.core.randomness import numpy_rng
from fcforge.core.settings import at_least, limits
from fcforge.methods.base import (
    EVERY_TARGET,
    Lane,
    Method,
    Model,
    Params,
    PublicView,
    SiteView,
)
from fcforge.methods.shared.ridge import linear_head
from fcforge.models.edge import WHOLE_LOG
from fcforge_consortium.base_model import vectors
from fcforge_consortium.base_model.planning import noise_per_subject
from fcforge_consortium.base_model.space import ContributionSpace, SpaceSettings
from fcforge_consortium.learners.generator import SumNoise, exact_contribution
from fcforge_consortium.learners.public_space import space_of


def model_params(
    space: ContributionSpace, beta: np.ndarray, device: torch.device, n_outputs: int = 2
) -> Params:
    """Return the network parameters of the linear model after a step from the base model.

    The network takes features that are not standardised. Its outputs are calibrated logits of the
    classes, or a number.

    Parameters
    ----------
    space : ContributionSpace
    beta : ndarray of shape (d + 1,) or (c, d + 1)
        The step.
    device : torch.device
    n_outputs : int
        Number of classes, or 1 for a number.

    Returns
    -------
    dict of Tensor
    """
    stepped = vectors.stepped_model(space, beta)
    raw = vectors.on_features(space, stepped)
    # logits of two classes are plus and minus half the log odds; a number is not calibrated
    factor = 0.5 / vectors.temperature(space, stepped) if n_outputs > 1 else 1.0
    weight_and_bias = np.concatenate([raw.weight, np.asarray(raw.bias)[None]])
    weight_and_bias = factor * weight_and_bias.reshape(len(weight_and_bias), -1)
    if n_outputs > 2:  # from columns to classes: along the corner of each class
        weight_and_bias = weight_and_bias @ vertices(n_outputs).T
    head = torch.from_numpy(weight_and_bias)
    params = linear_head(head[:-1], head[-1], n_outputs)
    return {name: value.to(device) for name, value in params.items()}


@dataclass(frozen=True)
class BaseModelAlone(Method):
    """Ridge on the public subjects; no site changes it."""

    name = "base_model_alone"
    former_name = "public_head"
    title = "Base model alone"
    source = "reference: the model of the public subjects"
    depends_on = "set"
    fits = False
    from_public = "head"
    needs_public = True
    models = ("linear",)
    features = WHOLE_LOG
    learns = EVERY_TARGET
    defaults_version = SpaceSettings.defaults_version  # its space relies on them

    def check_model(self, model: Model) -> None:
        """Raise `ConfigError` unless the model has features of the whole matrix logarithm."""
        if getattr(model, "features", "") != self.features:
            raise ConfigError(
                "a base model has features of the whole matrix logarithm of the FC.",
                where=self.where(),
                do="Leave the model's features out: that is its default.",
            )

    def space(self, public: PublicSubjects) -> ContributionSpace:
        """Return the space of contributions of the public subjects."""
        return space_of(public)

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane with the parameters of the base model."""
        if public is None:
            return lane
        space = self.space(public.subjects)
        no_step = vectors.solve(space, np.zeros(space.n_numbers), 0.0)
        params = model_params(space, no_step, lane.device, model.n_outputs)
        return lane._replace(params=params)


class SumState(NamedTuple):
    """State of the method: the sum over all sites so far.

    Attributes
    ----------
    total : Tensor of shape (m,), float64
        Sum of the sites' contributions, in whole units; with ``form = "sum"`` without noise.
    sites : Tensor, float64 scalar
        Number of sites in it.
    """

    total: torch.Tensor
    sites: torch.Tensor


@limits(people=at_least(1), hospitals=at_least(1))
@dataclass(frozen=True)
class Contributions(SumNoise, BaseModelAlone):
    """Base model plus the sum of the sites' contributions.

    Parameters
    ----------
    people, hospitals : int
        Planned numbers: the more noise per subject, the fewer directions are used.
    form : {"sum", "local"}
        Noise by two aggregators once over all sites so far, or by every site itself.
    **settings
        Those of `fcforge_consortium.learners.generator.SumNoise`.
    """

    people: int = 600
    hospitals: int = 10
    form: Literal["sum", "local"] = "sum"

    name = "contributions"
    former_name = "forge_release"
    title = "FORGE from contributions"
    source = "a base model and the discrete Gaussian mechanism"
    keeps = "statistics"
    from_public = "head and axes"
    State = SumState

    @property
    def planned_noise(self) -> float:
        """Return the planned noise per subject (`fcforge_consortium.base_model.planning`)."""
        doses = vectors.DOSES if self.form == "sum" else self.hospitals
        return noise_per_subject(self.people, self.limit, doses, self.delta)

    def space(self, public: PublicSubjects) -> ContributionSpace:
        """Return the space of contributions with settings for the planned noise."""
        return space_of(public, self.planned_noise)

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane with the base model and an empty sum.

        Without public subjects there is no base model yet: the lane then shows the types of its state.
        """
        size = self.space(public.subjects).n_numbers if public else 0
        total = torch.zeros(size, dtype=torch.float64, device=lane.device)
        lane = super().start(model, lane, public)
        return lane._replace(state=SumState(total, total.new_zeros(())))

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Add the contribution of the site's subjects and solve again.

        With ``form = "local"`` the site's own noise stays in the sum. With ``form = "sum"`` the sum is kept
        without noise, and noise of two aggregators is drawn anew for the model after each site. Sums are
        whole numbers far below 2^53, which float64 holds exactly.
        """
        assert site.public is not None  # `needs_public`
        space = self.space(site.public.subjects)
        numbers = exact_contribution(space, site.fc, site.y)
        if self.form == "local":
            rng = numpy_rng(site.seed, "release", site.name)
            numbers = numbers + self.drawn(len(numbers), 1, rng)
        before = lane.state.total
        total = before + torch.from_numpy(numbers).to(before)
        sites = lane.state.sites + 1.0
        count = int(sites)
        noisy = total.cpu().numpy()
        doses = count
        if self.form == "sum":
            doses = vectors.DOSES
            rng = numpy_rng(site.seed, "round", count)
            noisy = noisy + self.drawn(len(noisy), doses, rng)
        beta = vectors.solve(space, noisy, float(doses * self.units**2), count)
        params = model_params(space, beta, total.device, model.n_outputs)
        return lane._replace(params=params, state=SumState(total, sites))
