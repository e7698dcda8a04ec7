"""`fcforge serve`: a local, read-only page of a consortium's runs and capsules."""
