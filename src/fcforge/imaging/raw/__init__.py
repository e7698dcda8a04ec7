"""The raw path: from the scanner's 4D file to fMRIPrep-like derivatives in MNI space.

`pipeline` walks over subjects and runs the steps: `corrections` (slice timing, distortion, and the
paper's own programs where they are installed), `motion` and `mni` (registration, confounds).
"""
