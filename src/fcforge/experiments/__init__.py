"""Experiments: plan the prefix tree, train missing nodes, store every node, collect results."""
