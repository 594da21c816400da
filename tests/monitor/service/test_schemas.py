import json

from metastable.monitor.service.schemas import GETS, POSTS, openapi


def test_every_reference_of_the_document_resolves() -> None:
    document = openapi()
    known = document["components"]["schemas"]

    def references(node) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [r for value in node.values() for r in references(value)]
        return [r for value in node for r in references(value)] if isinstance(node, list) else []

    found = references(document)
    assert found and all(r.removeprefix("#/components/schemas/") in known for r in found)
    assert set(document["paths"]) == {*POSTS, *GETS}
    json.dumps(document)
