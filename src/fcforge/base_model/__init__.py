"""Base model: a linear model of public subjects, trained before any hospital joins.

Pure functions on numpy arrays, without torch.
"""
