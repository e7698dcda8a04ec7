"""Space of contributions of an experiment, fitted on the public subjects of the run."""

from functools import lru_cache

from fcforge.base_model.features import log_features
from fcforge.base_model.public_subjects import PublicSubjects
from fcforge_consortium.base_model.expected_gain import ExpectedGains
from fcforge_consortium.base_model.space import (
    ContributionSpace,
    SpaceSettings,
    fit_space,
)


@lru_cache(maxsize=8)
def space_of(public: PublicSubjects, noise: float | None = None) -> ContributionSpace:
    """Fit the space of contributions around the base model of public subjects.

    Parameters
    ----------
    public : PublicSubjects
        The same object again returns the same space.
    noise : float, optional
        Planned noise per subject, which chooses the settings; the defaults without it.
    """
    features = log_features(public.fc, public.base_model.shrink)
    settings = SpaceSettings()
    if noise is not None:
        gains = ExpectedGains(features, public.y, public.site, {noise})
        settings = gains.settings(noise)
    return fit_space(public.base_model, features, public.y, settings)
