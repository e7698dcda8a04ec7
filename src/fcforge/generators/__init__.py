"""Generators of FC matrices by name.

To add one, write its file here or register it as an entry point of ``fcforge.generators``.

=============  ======================================================  ======================
name           model                                                   valid samples
=============  ======================================================  ======================
fcm_vae        graph-transformer VAE (the paper's; three variants)     in the variant stable
regate         regression graph auto-encoder (rival in the paper)      no
brainnetgan    WGAN with cross-shaped kernels (rival in the paper)     no
gr_spd_gan     graph-regularised WGAN (rival in the paper)             yes, by construction
corr_gauss     Gaussian of each class in off-log coordinates           yes, by construction
bootstrap      real subjects drawn again (reference that leaks all)    yes, they are real
edge_gauss     independent edges (reference without networks)          no
contributed    public subjects and the site's contribution             yes, by construction
=============  ======================================================  ======================

A sample is valid if it is a correlation matrix: positive semidefinite with unit diagonal. Off-log
coordinates (`fcforge.generators.coordinates`) are edges of the matrix logarithm.
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
    """Build the generator that a config names.

    Parameters
    ----------
    component : Component
        Name and settings of the generator.
    public : PublicSubjects, optional
        Public subjects of the run, for a generator with ``needs_public``.

    Raises
    ------
    ConfigError
        If the name is unknown (the message names the nearest one) or a setting is wrong.

    Examples
    --------
    >>> make_generator(Component("corr_gauss", {"shrink": 0.05})).shrink
    0.05
    """
    cls = GENERATORS.get(component.name)
    given = {"public": public} if cls and cls.needs_public else {}
    return build("generator", component, GENERATORS, **given)


__all__ = ["GENERATORS", "Generator", "GeneratorState", "make_generator"]
