"""``python -m fcforge``: the command line without an installed script."""

from fcforge.cli import main

main()
