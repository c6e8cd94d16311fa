"""Settings of the vendor's servers."""

from __future__ import annotations

from pathlib import Path

from cstorch.server_settings import (
    DebugArgs,
    get_debug_args,
    set_default_ini,
    set_ini,
    update_debug_args_from_keys,
    write_debug_args,
)


def test_settings_are_written_and_read_again(tmp_path: Path) -> None:
    settings = DebugArgs()
    update_debug_args_from_keys(settings, {"debug_wse.a": 1, "debug_wse.b.c": "x"})
    set_ini(settings, ws_opt=True)
    set_default_ini(settings, ws_opt=False, other=2)
    write_debug_args(settings, tmp_path / "args")
    again = get_debug_args(tmp_path / "args")
    assert again == settings
    assert again.debug_wse.b.c == "x"
    assert (again.debug_usr.ini.ws_opt, again.debug_usr.ini.other) == (True, 2)


def test_merged_settings_win() -> None:
    first, second = DebugArgs(), DebugArgs()
    update_debug_args_from_keys(first, {"a.b": 1, "a.c": 2})
    update_debug_args_from_keys(second, {"a.c": 3, "d": 4})
    first.MergeFrom(second)
    assert (first.a.b, first.a.c, first.d) == (1, 3, 4)
