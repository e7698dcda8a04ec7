"""fcforge: hospitals learn one fMRI diagnosis model, one site after another."""

__version__ = "0.2.0"
