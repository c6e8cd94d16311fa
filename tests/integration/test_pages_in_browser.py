"""The pages of the service in a browser: what people see, type and run, and what goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.reports.browser import NEEDS_BROWSER
from tests.support.reports.driven_browser import Page, driven_browser
from tests.support.runs.served_folder import CONTEXT, WAIT_S, serving, train_decoder
from waferstream.cli.main import main

pytestmark = NEEDS_BROWSER

PATHS = ("", "playground", "account")
PROMPT = 'it\'s "def" $HOME `a` \\n é\n'

# A stream that the page believes to come from the service; %s has its chunks.
FAKE = """window.fetch = async (path, { signal } = {}) => new Response(new ReadableStream({
  start(controller) {
    signal?.addEventListener("abort", () => controller.error(signal.reason));
    const say = (data) => controller.enqueue(new TextEncoder().encode(`data: ${data}\\n\\n`));
    const write = (content) => say(JSON.stringify({ choices: [{ delta: { content } }] }));
    %s
  },
}))"""

NAMELESS = """[...document.querySelectorAll("input, select, textarea, button, svg")]
  .filter((each) => !(each.labels?.length || each.ariaLabel || each.textContent.trim()
    || each.ariaHidden)).map((each) => each.outerHTML)"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_decoder(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serving(folder) as place:
        yield place.removesuffix("v1")


def ask(page: Page, text: str) -> None:
    page.run("document.querySelector('#question').focus()")
    page.type(text)
    page.press("Enter")


def answers(page: Page) -> list[str]:
    found: list[str] = page.run(
        "[...document.querySelectorAll('.answer .text')].map((each) => each.textContent)"
    )
    return found


def test_chat_is_had_by_keys(page: Page, url: str) -> None:
    """A message of two lines, its answer, another answer in its place, and a new chat."""
    page.open(url)
    page.type("def ")
    page.press("Shift+Enter")
    ask(page, "x")
    page.see("document.querySelector('.again')")
    assert page.text(".question") == "def \nx"
    (first,) = answers(page)
    assert first
    told = page.text("summary")
    assert "tokens/s emulated CS-3" in told
    assert "tokens/s this host" in told
    page.click("summary")
    assert page.run("document.querySelectorAll('.wafers .region').length") > 1
    assert "computing" in page.text(".causes")
    page.click(".again")
    page.see(f"document.querySelector('.again') && {len(first)}")
    assert len(answers(page)) == 1
    page.click("#new")
    assert answers(page) == []


def test_what_was_said_is_part_of_the_next_question(page: Page, url: str) -> None:
    page.open(url)
    page.run(
        FAKE
        % "write('yes'); say('[DONE]'); controller.close();"
        + "; window.asked = []; const fake = window.fetch;"
        " window.fetch = (path, given) => { asked.push(JSON.parse(given.body)); return fake(path, given); }"
    )
    for text in ("a", "b"):
        ask(page, text)
        page.see(
            f"document.querySelector('.again') && asked.at(-1).messages.at(-1).content === '{text}'"
        )
    said = page.run("asked.at(-1).messages.map(({ role, content }) => role + ' ' + content)")
    assert said == ["user a", "assistant yes", "user b"]


def test_escape_stops_an_answer(page: Page, url: str) -> None:
    page.open(url)
    page.run(FAKE % "write('endless');")
    ask(page, "x")
    page.see("document.querySelector('.answer').textContent.includes('endless')")
    page.press("Escape")
    page.see("document.querySelector('.again')")
    assert answers(page) == ["endless"]
    assert "Stopped." in page.text(".answer")


def test_text_of_a_model_is_never_html(page: Page, url: str) -> None:
    evil = "<img src=x onerror=\"document.title='bad'\"><script>document.title='bad'</script>&amp;"
    page.open(url)
    page.run(FAKE % f"write({json.dumps(evil)}); say('[DONE]'); controller.close();")
    ask(page, evil)
    page.see("document.querySelector('.again')")
    assert answers(page) == [evil]
    assert page.text(".question") == evil
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert page.run("document.title") == "Chat - WaferStream"


@pytest.mark.parametrize(
    ("fate", "said"),
    [
        ("controller.error(new TypeError('network error'));", "broke off"),
        ("controller.close();", "broke off"),
        (
            'say(\'{"error": {"message": "the step failed"}, "status_code": 500}\');',
            "the step failed",
        ),
    ],
)
def test_answer_that_breaks_off_can_be_asked_for_again(
    page: Page, url: str, fate: str, said: str
) -> None:
    page.open(url)
    page.run(FAKE % f"write('half'); setTimeout(() => {{ {fate} }}, 50);")
    ask(page, "x")
    page.see("document.querySelector('.again')")
    assert said in page.text(".answer .fault")
    assert page.text(".again") == "Try again"
    assert answers(page) == ["half"]


def test_key_that_is_revoked_amid_an_answer_is_asked_for_anew(page: Page, url: str) -> None:
    page.open(url)
    page.run(
        FAKE
        % "write('half'); say(JSON.stringify({ error: { message: 'revoked' }, status_code: 403 }));"
    )
    ask(page, "x")
    page.see("document.querySelector('dialog #secret')")
    page.click("dialog button[type=button]")
    page.see("document.querySelector('.again')")
    assert answers(page) == ["half"]


def test_model_without_a_template_continues_the_messages(page: Page, url: str) -> None:
    page.open(url)
    page.run(
        FAKE
        % "say(JSON.stringify({ choices: [{ text: 'on' }] })); say('[DONE]'); controller.close();"
        + "; const fake = window.fetch; const error = { code: 'no-chat-template', message: '' };"
        " window.fetch = (path) => path === '/v1/completions' ? fake(path)"
        " : Response.json({ error }, { status: 400 });"
    )
    ask(page, "x")
    page.see("document.querySelector('.again')")
    assert answers(page) == ["on"]
    assert "no template of chats" in page.text("#log")


def test_thoughts_and_calls_stand_beside_the_text(page: Page, url: str) -> None:
    calls = '{ index: 0, function: { name: "weather", arguments: "{}" } }'
    page.open(url)
    page.run(
        FAKE % "say(JSON.stringify({ choices: [{ delta: { reasoning: 'hm' } }] })); write('well');"
        f" say(JSON.stringify({{ choices: [{{ delta: {{ tool_calls: [{calls}] }} }}] }}));"
        " say('[DONE]'); controller.close();"
    )
    ask(page, "x")
    page.see("document.querySelector('.again')")
    assert page.text(".call") == "weather({})"
    assert page.run("document.querySelector('details .text').textContent") == "hm"
    assert "well" in answers(page)


def test_huge_answer_is_shown(page: Page, url: str) -> None:
    page.open(url)
    page.run(
        FAKE % "for (let i = 0; i < 20000; i++) write('0123456789 0123456789 0123456789 ');"
        " say('[DONE]'); controller.close();"
    )
    ask(page, "x")
    page.see("document.querySelector('.again')")
    assert [len(text) for text in answers(page)] == [660_000]


@pytest.mark.parametrize(
    ("path", "stream"),
    [("/chat/completions", "yes"), ("/chat/completions", ""), ("/completions", "yes")],
)
def test_code_of_the_playground_runs_as_shown(page: Page, url: str, path: str, stream: str) -> None:
    """In every language it gives the text that the page has."""
    page.open(f"{url}playground")
    fields = {"path": f"/v1{path}", "messages": PROMPT, "seed": "7", "stream": stream}
    more = {"max_completion_tokens": "12", "temperature": "0.5", "stop": "q\nxyz"}
    for name, value in {**fields, **more}.items():
        page.choose(f"#{name}", value)
    page.click("#send")
    page.see("document.querySelector('.causes')")
    (text,) = answers(page)
    assert text
    for language in range(3):
        page.click(f"#languages button:nth-child({language + 1})")
        assert _run(language, page.run("document.querySelector('#code').textContent")) == text


def _run(language: int, code: str, **variables: str) -> str:
    """Return the text that code in Python, JavaScript or for a shell gets."""
    if language == 1 and shutil.which("node") is None:
        pytest.skip("node is not installed")
    words = ([sys.executable, "-c"], ["node", "--input-type=module", "-e"], ["bash", "-c"])
    done = subprocess.run(
        [*words[language], code], capture_output=True, text=True, timeout=WAIT_S, check=True,
        env={**os.environ, **variables},
    )  # fmt: skip
    if language < 2:
        return done.stdout.removesuffix("\n") if _ends_line(code) else done.stdout
    return _text_of(done.stdout)


def _ends_line(code: str) -> bool:
    """Return whether code prints a line break after the text."""
    return 'end=""' not in code


def _text_of(answer: str) -> str:
    """Return the text of an answer, or of the chunks of one."""
    lines = [line.removeprefix("data: ") for line in answer.splitlines()]
    found = [json.loads(line) for line in lines if line.startswith("{")]
    choices = [choice for each in found for choice in each["choices"]]
    said = [choice.get("delta") or choice.get("message") or choice for choice in choices]
    return "".join(each.get("content") or each.get("text") or "" for each in said)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"temperature": "7"}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"seed": "1e30"}, "seed"),
        ({"max_completion_tokens": str(2 * CONTEXT)}, "max_completion_tokens"),
        ({"stop": "1\n2\n3\n4\n5"}, "stop"),
        ({"messages": ""}, "messages"),
        ({"response_format": "json_schema", "schema": "{"}, "schema"),
        ({"response_format": "json_schema", "schema": '{"type": "string", "allOf": [false]}'}, "schema"),
        ({"path": "/v1/completions", "max_completion_tokens": "0"}, "max_completion_tokens"),
    ],
)  # fmt: skip
def test_error_stands_at_its_field(
    browser: Page, url: str, given: dict[str, str], field: str
) -> None:
    browser.open(f"{url}playground")
    for name, value in {"messages": "x", **given}.items():
        browser.choose(f"#{name}", value)
    browser.click("#send")
    browser.see(f"document.querySelector('#{field}-fault').innerText")
    assert browser.run("document.activeElement.id") == field
    assert browser.run("document.querySelectorAll('[aria-invalid]').length") == 1


def test_answer_is_of_a_schema(page: Page, url: str) -> None:
    page.open(f"{url}playground")
    one = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    page.choose("#response_format", "json_schema")
    page.choose("#schema", json.dumps({**one, "additionalProperties": False}))
    page.choose("#messages", "x")
    page.press("Control+Enter")
    page.see("document.querySelector('.causes')")
    assert isinstance(json.loads(answers(page)[0])["a"], bool)


@pytest.mark.parametrize("path", PATHS)
def test_page_is_for_every_reader(page: Page, url: str, path: str) -> None:
    """It fits a phone, is light or dark as preferred, and names what can be used."""
    page.size(360, 740, is_dark=True)
    page.open(url + path)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    color = "getComputedStyle(document.body).backgroundColor"
    assert page.run(wide) == 0
    dark = page.run(color)
    page.size(1280, 900)
    assert page.run(wide) == 0
    assert (dark, page.run(color)) == ("rgb(20, 24, 29)", "rgb(246, 247, 249)")
    assert page.run(NAMELESS) == []


def test_page_without_scripts_says_so(tmp_path: Path, url: str) -> None:
    with driven_browser(tmp_path) as page:
        page.without_scripts()
        page.open(url)
        assert "JavaScript" in page.text("main")


def test_key_is_asked_for_and_its_account_shown(
    folder: Path, browser: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong key, a good one with its limits and usage, and one that is revoked in a chat."""
    file = tmp_path / "accounts.db"

    def keys(*words: str) -> None:
        assert main(["serve", "keys", *words, "--accounts", str(file), "--json"]) == 0

    keys("create", "anne", "--tokens_per_minute", "5000", "--balance", "2")
    secret = json.loads(capsys.readouterr().out)["key"]
    with serving(folder, "--accounts", str(file)) as place:
        url = place.removesuffix("v1")
        browser.open(f"{url}account")
        assert "those of a key" in browser.text("#usage")
        browser.choose("#secret", "wrong")
        browser.click("#key .main")
        browser.see("document.querySelector('#key-fault').textContent")
        browser.choose("#secret", secret)
        browser.click("#key .main")
        browser.see("document.querySelector('#limits table')")
        assert "5,000" in browser.text("#limits")
        assert "$2.00" in browser.text("#usage")
        browser.open(f"{url}playground")
        browser.choose("#messages", "x")
        browser.choose("#seed", "1")
        browser.click("#send")
        browser.see("document.querySelector('.causes')")
        browser.click("#languages button:nth-child(3)")
        code = browser.run("document.querySelector('#code').textContent")
        assert [_run(2, code, WAFERSTREAM_API_KEY=secret)] == answers(browser)
        browser.open(f"{url}account")
        browser.see("document.querySelector('#usage table')")
        assert "model_dir" in browser.text("#usage")
        keys("revoke", "anne")
        browser.open(url)
        browser.see("document.querySelector('#question')")
        browser.run("new Promise((resolve) => setTimeout(resolve, 1500))")
        ask(browser, "x")
        browser.see("document.querySelector('dialog #secret')")
        assert "revoked" in browser.text("dialog")
        browser.press("Escape")
        browser.see("!document.querySelector('dialog') && document.querySelector('.again')")
        assert browser.run("sessionStorage.length") == 0
