"""``python -m elman`` is the command ``elman``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
