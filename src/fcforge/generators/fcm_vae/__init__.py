"""FCM-VAE, the paper's graph-transformer VAE of FC matrices, in three variants.

`stable` does not collapse and is the default, `paper` follows the text and `authors` their code.
docs/generators.md has a table of all differences.
"""

from fcforge.generators.fcm_vae import base
from fcforge.generators.fcm_vae.authors import AuthorsVAE
from fcforge.generators.fcm_vae.paper import PaperVAE
from fcforge.generators.fcm_vae.stable import StableVAE

base.VAE.variants = {cls.variant: cls for cls in (StableVAE, PaperVAE, AuthorsVAE)}

__all__ = ["AuthorsVAE", "PaperVAE", "StableVAE"]
