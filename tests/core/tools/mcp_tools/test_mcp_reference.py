import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.errors import UsageError
from toolformer_core.tools.mcp.reference import MCPSettings, Server, parse_reference


@pytest.mark.parametrize(
    ("text", "command", "tool"),
    [
        ("mcp+stdio:mcp-server-time#get_current_time", ("mcp-server-time",), "get_current_time"),
        ("mcp+stdio:npx -y @scope/server, now#get-sum", ("npx", "-y", "@scope/server,", "now"), "get-sum"),
        ("mcp+stdio:python 'my server.py' \"a b\" c\\ d#t", ("python", "my server.py", "a b", "c d"), "t"),
        ("mcp+stdio:run a; rm $HOME | x#t", ("run", "a;", "rm", "$HOME", "|", "x"), "t"),  # no shell
    ],
)
def test_a_command_is_split_into_words(text: str, command: tuple[str, ...], tool: str) -> None:
    assert parse_reference(text) == (Server(command=command), tool)


@pytest.mark.parametrize(
    ("text", "url", "local"),
    [
        ("mcp+https://example.org/mcp#search", "https://example.org/mcp", False),
        ("mcp+http://127.0.0.1:8000/mcp#search", "http://127.0.0.1:8000/mcp", True),
    ],
)
def test_an_address_is_kept_as_it_is(text: str, url: str, local: bool) -> None:
    reference, tool = parse_reference(text)
    assert (reference, tool) == (Server(url=url), "search")
    assert reference.is_local is local


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mcp+stdio:mcp-server-time", "names no tool"),
        ("mcp+stdio:#tool", "no command"),
        ("mcp+stdio:'#tool", "check its quotes"),
        ("mcp+ftp://example.org/#tool", "names no MCP server"),
        ("mcp+http://example.org/mcp#tool", "without encryption"),
        ("mcp+http://127.0.0.1.example.org/mcp#tool", "without encryption"),
        ("mcp+https://hunter2@example.org:port/mcp#tool", "no http or https address"),
        ("mcp+https://me:hunter2@example.org/mcp#tool", "user name or password"),
        ("mcp+https://example.org/mcp?api_key=hunter2#tool", "looks like a secret"),
        ("mcp+https://example.org/mcp?team=1&accessToken=hunter2#tool", "looks like a secret"),
        ("mcp+https://me:hunter2@example.org/mcp", "names no tool"),
    ],
)
def test_another_form_is_refused_and_no_secret_is_shown(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        parse_reference(text)
    assert "hunter2" not in str(caught.value)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8), min_size=1))
def test_what_a_reference_writes_it_reads(words: list[str]) -> None:
    words[0] = words[0] or "program"
    reference = Server(command=tuple(words))
    assert parse_reference(f"{reference.text}#tool") == (reference, "tool")


def test_an_authorization_of_one_word_is_a_bearer_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2\n")
    monkeypatch.setenv("MY_BASIC", "Basic aGk=")
    assert MCPSettings(headers={"Authorization": "MY_TOKEN", "X-Team": "MY_TOKEN"}).header_values() == {
        "Authorization": "Bearer hunter2",
        "X-Team": "hunter2",
    }
    assert MCPSettings(headers={"authorization": "MY_BASIC"}).header_values() == {"authorization": "Basic aGk="}


def test_settings_hold_names_and_not_values(monkeypatch: pytest.MonkeyPatch) -> None:
    unset = MCPSettings(env=("NOT_SET_ANYWHERE",), headers={"X-Key": "NOT_SET_EITHER"})
    with pytest.raises(UsageError, match="NOT_SET_ANYWHERE"):
        unset.process_environment()
    with pytest.raises(UsageError, match="NOT_SET_EITHER"):
        unset.header_values()
    with pytest.raises(UsageError, match="not the name of an environment variable"):
        MCPSettings(env=("sk-123=abc",))
    with pytest.raises(UsageError, match="not the name of an HTTP header"):
        MCPSettings(headers={"X Key": "MY_TOKEN"})
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    assert MCPSettings(env=("MY_TOKEN",)).hidden("no hunter2 here") == "no ${MY_TOKEN} here"
