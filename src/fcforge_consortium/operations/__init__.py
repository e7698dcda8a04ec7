"""Work of each command of ``fcforge consortium``: what it reads, checks and writes.

A function takes the *request* of its command (its options, `options`). It opens the consortium file that
another hospital sent, loads people and keys, and calls the package that does the work. Whatever leaves a
hospital or an aggregator is written together with a line in its ledger or list of rounds.
"""
