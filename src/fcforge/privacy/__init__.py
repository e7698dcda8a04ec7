"""Privacy that is measured: attacks on what is released, and the audit built from them.

"No raw scan is stored" is a statement about a file. "Private" would be a statement about every
attack there is; an audit only says how well the attacks it tried did.
"""

from __future__ import annotations
