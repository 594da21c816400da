"""The one loop over time steps."""

from types import SimpleNamespace as At

from metastable.solve.march import march


def by(width):
    return lambda state, target: At(t=min(state.t + width, target), made=state.t)


def test_every_target_is_met_and_every_state_is_seen():
    assert [s.t for s in march(by(0.4), At(t=0.0), [1.0, 1.2])] == [0.4, 0.8, 1.0, 1.2]


def test_targets_that_are_behind_are_skipped():
    assert [s.t for s in march(by(2.0), At(t=1.5), [1.0, 1.5, 3.0])] == [3.0]
    assert list(march(by(1.0), At(t=0.0), [])) == []


def test_every_stretch_is_entered_once_with_its_end():
    entered = []

    def enter(state, target):
        entered.append((state.t, target))
        return state

    list(march(by(0.5), At(t=0.25), [0.2, 1.0, 2.0], enter))
    assert entered == [(0.25, 1.0), (1.0, 2.0)]


def test_who_iterates_may_stop():
    made = march(by(1.0), At(t=0.0), [1e9])
    assert next(made).t == 1.0
    made.close()
