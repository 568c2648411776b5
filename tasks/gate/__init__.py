"""The gate's judgement of candidates, a person's approval, and the nightly watch over the champion."""
