"""Cohorts and their sources, data checks, splits, confound removal and harmonisation."""
