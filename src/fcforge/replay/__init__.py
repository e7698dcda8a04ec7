"""Subjects that learners may read and remember: bank, memory, bandit, HCTS."""
