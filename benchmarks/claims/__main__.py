"""`python -m benchmarks.claims`: see `benchmarks.claims.run`."""

import sys

from benchmarks.claims.run import main

if __name__ == "__main__":
    sys.exit(main())
