"""Chains: a model handed from hospital to hospital (torch)."""
