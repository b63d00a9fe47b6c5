"""Configure the tests: reproducible hypothesis runs, and one BLAS thread for each worker."""

import os

# If each test worker ran several BLAS threads, the threads would wait for each other. The variable
# is set before numpy is imported, because the BLAS library reads it only once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "reproducible", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reproducible"))
