"""``python -m fcforge.cli``: the command line without an installed script."""

from fcforge.cli import main

main()
