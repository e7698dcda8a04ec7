"""Signed files with which hospitals build a model together."""
