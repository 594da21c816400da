"""Tokens on S^2: cells of keys, or a Fourier grid; the error is stated."""
