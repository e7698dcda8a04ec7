"""Subjects that learners may read and remember.

`bank` holds all subjects that may be trained on; a subject is a row of it. What a method remembers of them
is a typed state (`state`), in most methods with a `memory` of rows, labels and teacher outputs. HCTS
chooses which remembered subjects are replayed: `hcts` is the sampler, `bandit` has its Thompson sampling
and the split of a budget over sites, `selection` the contexts of sites and subjects.
"""
