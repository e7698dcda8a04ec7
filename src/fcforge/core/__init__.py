"""Vocabulary shared by all layers: errors, settings, files, randomness, targets, specifications."""
