"""Test configuration: reproducible hypothesis runs."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "reproducible", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reproducible"))
