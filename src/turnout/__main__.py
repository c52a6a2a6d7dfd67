"""`python -m turnout` is `turnout`."""

from turnout.cli import main

main()
