"""`python -m tamis` is the command `tamis`."""

from tamis.cli import main

main()
