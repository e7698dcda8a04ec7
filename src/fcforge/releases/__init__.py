"""Public start and releases: what a consortium begins from, and what one hospital gives.

Pure functions on numpy arrays. `features` turns scans into features, `targets` says what is
learned of a person, `start` makes the start from public people, `plan` says with which settings,
`vector` makes a hospital's contribution and solves the head from the sum of all, `worth` tells in
advance what that would bring. Files, signatures and the set of releases live in `fcforge.exchange`.
"""
