"""Base model of public subjects as a signed record."""
