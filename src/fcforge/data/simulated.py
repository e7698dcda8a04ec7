"""The dataset ``simulated``: made-up hospitals, in one of two worlds chosen by the preset."""

from collections.abc import Sequence

from fcforge.core.names import check_names
from fcforge.core.settings import above, at_least, checked, limits, within
from fcforge.data.cohort import Cohort
from fcforge.data.simulated_calibrated import PRESETS, simulate_calibrated
from fcforge.data.simulated_systems import simulate_systems

SYSTEMS = "systems"  # the preset with a world of its own


@limits(
    n_rois=at_least(4),
    n_sites=at_least(1),
    scale=above(0),
    d_scale=at_least(0),
    rho=within(-1, 1),
    disorders=at_least(1),
    subjects_per_site=at_least(1),
    volumes=at_least(1),
    common_effect=at_least(0),
    site_effect=at_least(0),
)
def simulate(
    preset: str = "realistic",
    layout: str | None = None,
    n_rois: int | None = None,
    n_sites: int | None = None,
    scale: float | None = None,
    seed: int = 0,
    d_scale: float | None = None,
    rho: float | None = None,
    sites: Sequence[str] | None = None,
    disorders: int | None = None,
    subjects_per_site: int | None = None,
    volumes: int | None = None,
    common_effect: float | None = None,
    site_effect: float | None = None,
) -> Cohort:
    """Simulate a multi-site dataset.

    Parameters
    ----------
    preset : {"easy", "realistic", "hard", "hard_shift", "systems"}
        ``"systems"``: four hospitals whose patients share a little and differ a lot, made to
        show forgetting (`simulate_systems`). The others are calibrated on real ABIDE
        (`simulate_calibrated`).
    n_rois : int, optional
        Number of ROIs; by default 116, or 40 with ``"systems"``.
    n_sites : int, optional
        Number of sites; by default as many as the layout has, or 4 with ``"systems"``.
    seed : int
    sites : sequence of str, optional
        Sites to keep, in this order.
    layout, scale, d_scale, rho, disorders
        Settings of `simulate_calibrated`.
    subjects_per_site, volumes, common_effect, site_effect
        Settings of `simulate_systems`.

    Returns
    -------
    Cohort

    Raises
    ------
    ConfigError
        For an unknown preset, and for a setting that the preset does not have.
    """
    # `locals` holds the arguments alone here; those that are None keep their defaults.
    settings = {name: value for name, value in locals().items() if value is not None}
    check_names("preset", [preset], (*PRESETS, SYSTEMS))
    where = f"preset '{preset}'"
    if preset == SYSTEMS:
        settings.pop("preset")
        return simulate_systems(**checked(simulate_systems, settings, where))
    return simulate_calibrated(**checked(simulate_calibrated, settings, where))
