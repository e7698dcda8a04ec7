"""Signed files with which hospitals build a model together.

Terms, in the order in which a reader meets them:

record
    One signed JSON statement (`records.kinds`). Its *kind* says what it states: a base model, a
    contribution, a step of a chain, a withdrawal and so on. Its *id* is its SHA-256. It names its
    *parents*, the records that it builds on, and its *payload*, the arrays that belong to it.
root
    The record that all others build on: a base model, or the beginning of a chain.
exchange
    A root with all records that build on it and their arrays, as one consortium file (``.fcx``)
    holds them (`records.exchange`).
policy
    The rules of the consortium, part of the root: largest budget, fewest people, aggregators.
contribution
    The sum, over a hospital's people, of one vector for each person, plus noise
    (`base_model.vectors`). The model is the base model moved by all contributions.
round
    A set of hospitals whose contributions two *aggregators* add up without reading any of them.
    Each hospital splits its vector into two *shares*, one for each aggregator, and signs a *notice*
    of them. Both aggregators sign a *closing record*, which fixes the set of hospitals. Then each
    publishes its *aggregate share*, the sum of its shares with noise. The two aggregate shares add
    up to the noisy sum of the contributions (`aggregation`).
chain
    The other kind of exchange: hospitals train one network one after another. What one hospital
    does is a *step* (`chains`).
ledger
    A hospital's own list of its people and their spent budget. It never leaves. An *entry* lists the
    people behind one record (`ledger`).
commitment
    A salted hash of the people behind a record. The record holds it, the ledger holds the salt.
"""
