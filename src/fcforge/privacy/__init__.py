"""Privacy: noise mechanisms and their accountant, attacks, and measures of how well they do.

Pure functions, low in the house: private methods and generators draw their noise here, audits
(`fcforge.studies.audit`, `fcforge.exchange.audit`) attack with what is here. "No raw scan is
stored" is a statement about a file. "Private" would be a statement about every attack there is;
an audit only says how well the attacks it tried did.
"""
