"""Signed records: schema, canonical encoding, keys, archive, verification and merge."""
