"""Texts that `fcforge init` writes."""

EXPERIMENT = """\
# fcforge experiment. `fcforge check` this file, then `fcforge run` it; the same command resumes.

[experiment]
title = "My first experiment"
seeds = [0, 1, 2]          # each seed has its own splits and its own networks
orders = "all"             # every order of the sites; or a number of random orders; or a list
protocol = "strict"        # or "paper": the paper's settings, still without its leaks

[dataset]
name = "simulated"         # see `fcforge list datasets`
preset = "realistic"       # easy, realistic, hard, hard_shift
scale = 0.5                # share of the subjects of the real sites
# Your own data instead: an .npz, or a folder with participants.tsv and one file per subject
# name = "folder"
# path = "my_data"
# merge = { UM = ["UM_1", "UM_2"] }

[training]
epochs = 30
batch_size = 32
# lr = 1e-3                # default: the model's own rate from the paper
selection = "fixed"        # or "inner_val": best epoch on a part cut from the training subjects

# Leaks of the authors' code, to measure their effect; every report they touch says so in red.
# [leaks]
# select_on_test = true

# One [[learner]] is one row of the table. See `fcforge list methods` and `fcforge list models`.
[[learner]]
method = "finetune"
model = "gcn"

[[learner]]
method = "cumulative"
model = "linear"

[[learner]]
method = "analytic"        # or with settings: method = { name = "analytic", penalty = 1e4 }
model = "linear"
"""
