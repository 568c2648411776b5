"""`python -m benchmarks.league`: see `benchmarks.league.run`."""

import sys

from benchmarks.league.run import main

if __name__ == "__main__":
    sys.exit(main())
