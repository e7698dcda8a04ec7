"""The version of fcforge."""

__version__ = "0.2.0"
