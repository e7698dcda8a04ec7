"""Contributions of hospitals to a base model, and predictions with the resulting model."""
