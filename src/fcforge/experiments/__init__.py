"""Experiments: read a config, plan its runs, train them, store and collect their results.

A run is one learner trained on the sites in one order with one seed. A learner is a method with its model
and generator, one row of the results table. Runs that begin alike share the training of their beginning (the
prefix): together they form the prefix tree. A node of the tree is one site training, stored as one folder.
"""
