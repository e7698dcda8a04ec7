"""A public start with releases and sums as a model (numpy)."""
