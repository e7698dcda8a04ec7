"""Public start and releases: what a consortium begins from, and what one hospital gives.

Pure functions on numpy arrays. `features` turns scans into features, `start` makes the start from
public people, `vector` makes a hospital's release and solves the head from the sum of all
releases. Files, signatures and the set of releases live in `fcforge.consortium`.
"""
