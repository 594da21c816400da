"""Random cases, one module per room: `make fuzz` runs them all."""
