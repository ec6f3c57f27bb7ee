"""`python -m lib`."""

import sys

try:
    from lib.cli import main
except ModuleNotFoundError as error:
    sys.exit(f"error: {error}: activate the environment, or run `pip install -e .` in the clone")

main()
