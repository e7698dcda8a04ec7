"""Steps of the consortium with files: what each command reads, checks and writes."""
