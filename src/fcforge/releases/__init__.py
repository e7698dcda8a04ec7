"""Public start and releases: what a consortium begins from, and what one hospital gives.

Pure functions on numpy arrays. `features` turns scans into features and says what is learned of a
person, `start` makes the start from public people, `vector` makes a hospital's contribution and
solves the head from the sum of all, `worth` says with which settings, and what that would bring.
Files, signatures and the set of releases live in `fcforge.exchange`.
"""
