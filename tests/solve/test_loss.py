"""A loss and its derivative, and what is no loss."""

import pytest
import torch

from metastable.errors import InvalidInput, SolveError
from metastable.solve.loss import Loss

POINTS = torch.eye(3, dtype=torch.float64)


def test_the_value_and_the_derivative():
    value, slope = Loss(lambda x: (x**2).sum(), POINTS).at(2 * POINTS)
    assert value == 12.0 and bool((slope == 4 * POINTS).all())


def test_a_row_of_one_number_counts_as_it():
    assert Loss(lambda x: x[:1, :1], POINTS).at(POINTS)[0] == 1.0


@pytest.mark.parametrize(
    "loss",
    [None, 3, "x", lambda: 1, lambda x: x, lambda x: 1.0, lambda x: x.detach().sum(),
     lambda x: torch.ones((), requires_grad=False), lambda x: None, lambda x: "a", lambda x, y: x.sum()],
)  # fmt: skip
def test_what_is_no_loss_is_refused_before_the_run(loss):
    with pytest.raises(InvalidInput, match="loss") as caught:
        Loss(loss, POINTS)
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


def test_a_loss_of_other_variables_does_not_depend_on_the_points():
    other = torch.ones((), requires_grad=True)
    with pytest.raises(InvalidInput, match="depend"):
        Loss(lambda x: 2 * other, POINTS).at(POINTS)


def test_what_a_loss_raises_inside_is_its_own():
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        Loss(broken, POINTS)


def test_a_loss_that_is_not_finite_at_the_end():
    loss = Loss(lambda x: torch.log(x.sum()), POINTS)
    with pytest.raises(SolveError, match="finite"):
        loss.at(-POINTS)
    with pytest.raises(SolveError, match="derivative"):
        Loss(lambda x: torch.sqrt(x).sum(), POINTS + 1).at(0 * POINTS)
