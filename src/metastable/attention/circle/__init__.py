"""Tokens on the circle: keys gathered into cells, queries into patches; the error is stated."""
