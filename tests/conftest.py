"""Settings shared by all tests."""

from hypothesis import HealthCheck, settings

# The machine's speed is not a property of the code: no deadlines.
settings.register_profile(
    "metastable", deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("metastable")
