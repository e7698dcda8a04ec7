"""Scan or derivative -> ROI time series -> FC.

`atlas` finds the ROIs, `scan` and `series` read files, `layouts` knows the folder conventions of
fMRIPrep, XCP-D, C-PAC and DPABI, `extract` makes one subject's FC, `app` walks over subjects.
`raw` is the basic path from a raw scan. Nothing is imported here: nilearn takes seconds.
"""
