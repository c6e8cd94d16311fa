"""What the pages let a browser do, and for whom."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.management.seeded import BREATHING, TOKENS, Seeded, seeded

PATHS = ("/", "/cluster", f"/jobs/{BREATHING}")


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    with seeded(tmp_path_factory.mktemp("appliance")) as found:
        yield found


@pytest.fixture
def client(appliance: Seeded) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=appliance.url) as made:
        yield made


def sign_in(client: httpx.Client, token: str, origin: str) -> httpx.Response:
    return client.post("/login", data={"token": token}, headers={"origin": origin})


@pytest.mark.parametrize("path", PATHS)
def test_stranger_is_led_to_where_one_signs_in(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    part = client.get(path, headers={"hx-request": "true"})
    assert part.headers["hx-redirect"] == "/login"


def test_token_is_in_a_cookie_that_no_script_and_no_other_site_reads(
    client: httpx.Client, appliance: Seeded
) -> None:
    answer = sign_in(client, TOKENS["ann"], appliance.url)
    assert answer.status_code == 303
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    "token", ["wst-wrong", "", "\u00e9", "a b\r\nset-cookie: x=y", "x" * 10_000]
)
def test_wrong_token_is_not_kept(client: httpx.Client, appliance: Seeded, token: str) -> None:
    answer = sign_in(client, token, appliance.url)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_form_of_another_site_signs_nobody_in(client: httpx.Client) -> None:
    assert sign_in(client, TOKENS["ann"], "http://evil.example").status_code == 403


@pytest.mark.parametrize("path", [*PATHS, "/login", "/jobs/none", "/pages/job.js"])
def test_no_page_takes_a_script_from_elsewhere(
    client: httpx.Client, appliance: Seeded, path: str
) -> None:
    sign_in(client, TOKENS["ann"], appliance.url)
    policy = client.get(path).headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "/pages/base.html.jinja", "/pages/..%2frouter.py", "/pages/router.py",
        f"/jobs/{BREATHING}/pictures/..%2flog", f"/jobs/{BREATHING}/pictures/..%2f..%2flog.png",
    ],
)  # fmt: skip
def test_path_that_escapes_is_refused(client: httpx.Client, appliance: Seeded, path: str) -> None:
    sign_in(client, TOKENS["ann"], appliance.url)
    assert client.get(path).status_code in (400, 403, 404)


def test_pictures_of_a_run_are_for_its_user(client: httpx.Client, appliance: Seeded) -> None:
    picture = appliance.folders.model_dir(BREATHING) / "loss.png"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"picture")
    path = f"/jobs/{BREATHING}/pictures/loss.png"
    sign_in(client, TOKENS["bob"], appliance.url)
    assert client.get(path).status_code == 403
    assert "loss.png" not in client.get(f"/jobs/{BREATHING}").text
    sign_in(client, TOKENS["ann"], appliance.url)
    assert client.get(path).content == b"picture"
    assert path in client.get(f"/jobs/{BREATHING}").text


def test_metrics_are_for_whoever_has_a_token(client: httpx.Client) -> None:
    assert client.get("/metrics").status_code == 401
    shown = client.get("/metrics", headers={"authorization": f"Bearer {TOKENS['bob']}"})
    assert "waferstream_system_busy" in shown.text
