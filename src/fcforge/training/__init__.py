"""Training: lanes learn a site and are scored on every site."""
