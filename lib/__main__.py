"""`python -m lib`."""

from lib.cli import main

main()
