"""Preprocessing of raw scans: from the scanner's 4D file to scans and confounds in MNI space.

The output has the layout of fMRIPrep. `pipeline` runs the steps for every subject: `corrections` (slice timing,
distortion, and the paper's own programs where they are installed), `motion` (estimation of head motion) and
`mni` (registration, confounds).
"""
