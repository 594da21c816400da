"""The channels of the monitor, one law of in-distribution texts each."""
