"""Membership and identity attacks, and the audit of generators.

"No raw scan is stored" is a statement about a file. "Private" would be a statement about every
attack there is; an audit only measures how well the attacks it tried did.
"""
