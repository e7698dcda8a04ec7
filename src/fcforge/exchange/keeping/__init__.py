"""Rounds of two keepers: shares, halves, sums."""
