"""From a scan, or another tool's output, to ROI time series and functional connectivity (FC).

`atlas` finds the regions of interest (ROIs), `scan` and `series` read files, `layouts` has the folder
conventions of fMRIPrep, XCP-D, C-PAC and DPABI, `extract` makes one subject's FC, and `app` makes that of
all subjects. `raw` preprocesses raw scans. Nothing is imported here, because nilearn takes seconds.
"""
