"""Quality of synthetic FC: validity, fidelity, diversity and use for augmentation."""
