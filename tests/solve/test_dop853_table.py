"""The table is SciPy's, which is that of the authors, to the last bit."""

import numpy as np
from scipy.integrate import DOP853
from scipy.integrate._ivp import dop853_coefficients as scipy_table  # private: named here alone

from metastable.solve import dop853_table as table


def test_the_table_is_that_of_scipy_to_the_last_bit():
    stages, late = len(table.WEIGHTS), 3
    assert (stages, DOP853.n_stages, scipy_table.N_STAGES_EXTENDED) == (12, 12, stages + 1 + late)
    assert np.array_equal(table.NODES, scipy_table.C[:stages])
    assert np.array_equal(table.LATE_NODES, scipy_table.C[stages + 1 :])
    for number, row in enumerate(table.STAGES):
        assert len(row) == number and np.array_equal(row, scipy_table.A[number, :number])
    for number, row in enumerate(table.LATE_STAGES, start=stages + 1):
        assert len(row) == number and np.array_equal(row, scipy_table.A[number, :number])
    assert np.array_equal(table.WEIGHTS, scipy_table.B)
    assert np.array_equal(table.FIFTH, scipy_table.E5[:stages]) and scipy_table.E5[stages] == 0
    assert np.array_equal(table.THIRD, scipy_table.E3[:stages]) and scipy_table.E3[stages] == 0
    assert np.array_equal(table.DENSE, scipy_table.D)


def test_conditions_of_order_one():
    """Arguments of stages stand at their nodes; weights sum to one, differences of weights to zero."""
    for row, node in zip((*table.STAGES, *table.LATE_STAGES), (*table.NODES, *table.LATE_NODES), strict=True):
        assert abs(sum(row) - node) < 1e-13
    assert abs(sum(table.WEIGHTS) - 1) < 1e-14
    assert abs(sum(table.FIFTH)) < 1e-14 and abs(sum(table.THIRD)) < 1e-14
