"""Secret noise and its privacy accounting."""
