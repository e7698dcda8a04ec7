"""The judge of generators: one set (`judge`), or all generators on all sites (`panel`)."""

from fcforge.studies.judge.panel import judge, judge_fidelity

__all__ = ["judge", "judge_fidelity"]
