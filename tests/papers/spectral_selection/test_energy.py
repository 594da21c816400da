from small_claims import small_verdict


def test_the_energy_never_falls_and_the_identity_holds_in_every_setting():
    rows = small_verdict("selection-energy").table
    assert all(row["smallest increase of E/E_max"] > -1e-14 for row in rows)
    assert all(row["deviation of dE/dt"] < 1e-7 for row in rows)


def test_every_setting_settles_and_a_rotation_does_not():
    verdict = small_verdict("selection-settles")
    assert all(row["share at rest"] == 1 for row in verdict.table)
    assert all(row["largest residual of P2 at the end"] < 1e-6 for row in verdict.table)
    assert verdict.figure.series[-1].y[-1] > 0.4
    assert all(series.y[-1] < 1e-6 for series in verdict.figure.series[:-1])
