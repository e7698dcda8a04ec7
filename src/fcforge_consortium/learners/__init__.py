"""Contributions as a method and a generator of fcforge experiments (torch).

fcforge loads both through entry points. The registry of generators is loaded here first, so that
the module of the generator can be imported before it.
"""

import fcforge.generators  # noqa: F401
