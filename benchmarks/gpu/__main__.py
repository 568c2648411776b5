"""`python -m benchmarks.gpu`: see `benchmarks.gpu.sweep`."""

import sys

from benchmarks.gpu.sweep import main

if __name__ == "__main__":
    sys.exit(main())
