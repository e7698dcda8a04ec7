"""The runner: plan the prefix tree, train what is missing, store every node, collect results."""
