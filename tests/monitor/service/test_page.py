from metastable.monitor.service import Service
from metastable.monitor.service.page import live_page


def test_the_page_needs_no_network_and_shows_the_calibration(reader) -> None:
    page = live_page(Service(reader).health(), 500)
    assert "Live monitor of tiny-bert" in page and "dynamics" in page
    assert "https://" not in page and page.count("http://") == page.count("http://www.w3.org/2000/svg")


def test_a_name_is_escaped(reader) -> None:
    told = Service(reader).health() | {"model": "<script>x</script>", "channels": ["</script>"]}
    page = live_page(told, 5)
    assert "<script>x" not in page and page.count("</script>") == 1
