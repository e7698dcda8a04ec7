"""Generators of FC matrices by name.

To add one, write its file here or register it as an entry point of ``fcforge.generators``.

=============  ==========================================================  =================
name           model                                                       valid by
=============  ==========================================================  =================
fcm_vae        graph-transformer VAE (paper; three variants)               off-log (stable)
regate         regression graph auto-encoder (paper's rival)               nothing
brainnetgan    WGAN-GP with cross-shaped kernels (paper's rival)           nothing
gr_spd_gan     graph-regularised WGAN on SPD matrices (paper's rival)      construction
corr_gauss     class Gaussian in off-log coordinates                       construction
bootstrap      real subjects drawn again (leaky reference)                 being real
edge_gauss     independent edges (calibration point)                       nothing
contributed    public subjects and the site's contribution                 construction
=============  ==========================================================  =================
"""

from fcforge.base_model.public_subjects import PublicSubjects
from fcforge.core.component import Component
from fcforge.core.registry import Registry, registered
from fcforge.core.settings import build
from fcforge.generators.base import Generator, GeneratorState

GENERATORS: Registry[type[Generator]] = registered(__name__, Generator)


def make_generator(
    component: Component, public: PublicSubjects | None = None
) -> Generator:
    """Return the generator of that name with those parameters; `ConfigError` names the nearest.

    Parameters
    ----------
    component : Component
    public : PublicSubjects, optional
        Public subjects of the run, for a generator with ``needs_public``.

    Examples
    --------
    >>> make_generator(Component("corr_gauss", {"shrink": 0.05})).shrink
    0.05
    """
    cls = GENERATORS.get(component.name)
    given = {"public": public} if cls and cls.needs_public else {}
    return build("generator", component, GENERATORS, **given)


__all__ = ["GENERATORS", "Generator", "GeneratorState", "make_generator"]
