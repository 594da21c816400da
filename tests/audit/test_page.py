"""The page of a report."""

from __future__ import annotations

from metastable.audit import audit
from metastable.encoders import load
from tiny_encoders import configs, random_model


def test_names_from_outside_are_escaped():
    model = random_model(configs()["bert"])
    page = audit(load(model, name="<script>alert(1)</script>"), loop_steps=3).to_html()
    assert "<script>" not in page and "&lt;script&gt;" in page
