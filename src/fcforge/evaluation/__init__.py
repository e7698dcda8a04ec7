"""Evaluation of stored scores and of generators: metrics, intervals, comparisons, tables, attacks."""
