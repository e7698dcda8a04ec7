"""What is asked of runs and generators: tuning, unseen sites, fidelity, privacy."""
