"""Public start and releases: what a consortium begins from, and what one hospital gives.

Pure functions on numpy arrays. `vector` turns scans into features and these into a hospital's
contribution, and solves the head from the sum of all; `start` makes the start from public people,
`worth` says with which settings, and what that would bring.
Files, signatures and the set of releases live in `fcforge.exchange`.
"""
