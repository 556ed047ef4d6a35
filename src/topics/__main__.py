"""`python -m topics`: the command, where scripts are not on the path."""

import sys

from topics.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
