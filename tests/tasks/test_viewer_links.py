"""Links to the viewer: where they lead, and that there are none where no viewer is known."""

import pytest

from tasks.settings import viewer_url
from tasks.viewer_links import arm_key, arms_page, version_page
from toolformer_core.errors import UsageError


def test_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLFORMER_VIEWER", raising=False)
    assert [viewer_url(), version_page("cstar@1"), arms_page(["base:10:d"], "svamp")] == [None] * 3
    monkeypatch.setenv("TOOLFORMER_VIEWER", "https://tools.example/view/")
    assert version_page("cstar@1a") == "https://tools.example/view/documents?version=cstar%401a"
    arms = [arm_key("base", 10, "0123456789abcdef"), "x", arm_key("base+cc", 0, "d")]
    address = "https://tools.example/view/models?a=base%3A10%3A0123456789ab&b=base%2Bcc%3A0%3Ad&task=a+b"
    assert arms_page(arms, "a b") == address
    assert arms_page([], "svamp") is None


@pytest.mark.parametrize("wrong", ["8001", "file:///x", "http://user:pw@host", "http://host/?key=1", "http://a b"])
def test_a_wrong_address_costs_the_links_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    monkeypatch.setenv("TOOLFORMER_VIEWER", wrong)
    with pytest.raises(UsageError, match=r"write e\.g\. http:"):
        viewer_url()
    assert version_page("cstar@1") is None
    assert "there are no links to the viewer" in caplog.text
    assert "pw" not in caplog.text
