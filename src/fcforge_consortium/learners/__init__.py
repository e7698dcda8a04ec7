"""Contributions as a method and a generator of fcforge experiments (torch)."""
