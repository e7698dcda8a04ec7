"""The raw path: from the scanner's 4D file to fMRIPrep-like derivatives in MNI space.

`pipeline` runs the steps; `slice_timing`, `motion`, `distortion`, `normalise` and `nuisance` are
one step each; `fsl_spm` is the paper's own programs where they are installed.
"""
