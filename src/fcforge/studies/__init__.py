"""What is asked of runs and generators: tuning, unseen sites, motion, fidelity, privacy."""
