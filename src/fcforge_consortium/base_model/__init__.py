"""Base model of public subjects: its record, its space of contributions and the expected gain."""
