"""Training: networks learn one site after another and are scored on every site.

A lane is one training run: one learner, one order of sites, one seed. Lanes that learn the same site
train together (`fcforge.training.lanes`).
"""
