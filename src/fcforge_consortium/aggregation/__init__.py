"""Rounds of two aggregators: encrypted shares and their sums."""
