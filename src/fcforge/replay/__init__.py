"""What learners may look at, and what they remember: bank, memory, bandit, HCTS."""
