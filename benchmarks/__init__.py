"""Speed and memory of this project and of TRL, measured side by side. `python -m benchmarks --help`."""

import models  # noqa: F401 - sets how OpenMP's threads wait, before anything here loads torch
