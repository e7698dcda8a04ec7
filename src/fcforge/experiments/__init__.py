"""Experiments: read a config, plan its runs, train them, store and collect their results.

A run is one learner trained on the sites in one order with one seed. A learner is a method with its model
and generator, one row of the results table. Runs that begin alike share the training of their beginning (the
prefix): together they form the prefix tree. A node of the tree is one site training, stored as one folder.

The way of `fcforge run` through the modules:

- `config` reads the config, `plan` makes the prefix tree, `run` checks everything and opens the run folder
  (`store`).
- `execute` trains in worker processes on CPUs or in this process on a GPU, `cluster` on other machines; `work`
  lists the nodes that are still to be trained.
- `trainer` trains nodes. `run_parts` has what their runs share, `site_loader` puts the subjects of a site into
  the bank, and `lane_storage` reads and writes lanes (`fcforge.training`).
- `collect` makes results from the run folder, which `fcforge.evaluation` and `fcforge.report` read.
"""
