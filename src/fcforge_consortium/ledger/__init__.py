"""A hospital's private ledger: journal, people, budget and entries."""
