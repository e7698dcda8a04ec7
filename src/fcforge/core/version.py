"""The version of fcforge."""

__version__ = "0.3.0"
