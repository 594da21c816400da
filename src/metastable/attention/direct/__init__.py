"""All pairs on the CPU: four kernels for different sizes, exact up to rounding."""
