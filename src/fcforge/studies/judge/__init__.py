"""The judge of generators: one set (`panel.judge`), or all generators on all sites."""
