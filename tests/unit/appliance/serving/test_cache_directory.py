"""Beginnings that are kept: found, copied, taken over, and given up for those that run."""

from __future__ import annotations

from appliance.serving.cache_directory import BLOCK, CacheDirectory, Change, Copy, Forget, block_key


def keys(*blocks: str) -> list[bytes]:
    found = [b""]
    for block in blocks:
        found.append(block_key(found[-1], block))
    return found[1:]


def kept(directory: CacheDirectory, *blocks: str) -> str:
    """Let a sequence of these blocks run and end."""
    opened = directory.open(keys(*blocks), len(blocks) * BLOCK)
    assert opened is not None
    directory.extend(opened[0], keys(*blocks))
    directory.close(opened[0], 300)
    return opened[0]


def made(memory: int = 4) -> CacheDirectory:
    return CacheDirectory(memory * BLOCK, page=BLOCK, now=lambda: 0.0)


def test_beginning_that_others_may_use_is_copied() -> None:
    directory = made()
    source = kept(directory, "a", "b")
    assert directory.open(keys("a", "c"), 2 * BLOCK) == ("kv-1", BLOCK)
    assert directory.changes() == [Copy(source, "kv-1", BLOCK)]
    assert directory.open(keys("a", "b"), 2 * BLOCK) == (source, 2 * BLOCK)
    assert directory.changes() == []
    assert directory.free == 0


def test_sequence_that_runs_lends_its_beginning() -> None:
    directory = made()
    assert directory.open([], BLOCK) == ("kv-0", 0)
    directory.extend("kv-0", keys("a"))
    assert directory.open(keys("a", "b"), 2 * BLOCK) == ("kv-1", BLOCK)
    assert directory.changes() == [Copy("kv-0", "kv-1", BLOCK)]
    assert directory.open(keys("a", "b"), 2 * BLOCK) is None


def test_beginning_is_taken_over_where_there_is_no_room_for_both() -> None:
    directory = made(3)
    source = kept(directory, "a", "b")
    assert directory.open(keys("a", "c"), 3 * BLOCK) == (source, BLOCK)
    assert directory.free == 0
    assert directory.changes() == []
    directory.extend(source, keys("a", "c"))
    directory.close(source, 300)
    assert directory.open(keys("a", "b"), 3 * BLOCK) == (source, BLOCK)  # "b" was replaced


def test_least_recently_used_is_given_up_first() -> None:
    directory = made()
    first, second = kept(directory, "a"), kept(directory, "b")
    kept(directory, "a")
    assert directory.open([], 3 * BLOCK) == ("kv-2", 0)
    assert directory.changes() == [Forget(second)]
    assert directory.grow("kv-2", 4 * BLOCK)
    assert directory.changes() == [Forget(first)]
    assert not directory.grow("kv-2", 5 * BLOCK)


def test_what_cannot_have_room_gives_up_nothing() -> None:
    directory = made()
    kept(directory, "a")
    directory.open([], 2 * BLOCK)
    assert directory.open([], 3 * BLOCK) is None
    assert not directory.grow("kv-1", 4 * BLOCK, evicts=False)
    assert directory.changes() == []


def test_beginning_that_another_contains_is_forgotten() -> None:
    directory = made()
    changes: list[Change] = []
    for name in ("kv-0", "kv-1"):  # side by side
        assert directory.open([], BLOCK) == (name, 0)
    for name, blocks in (("kv-0", "a"), ("kv-1", "ab")):
        directory.extend(name, keys(*blocks))
        directory.close(name, 300)
        changes += directory.changes()
    assert changes == [Forget("kv-0")]


def test_keys_tell_what_is_before_a_block() -> None:
    assert len({*keys("a", "b"), *keys("b", "a"), *keys("ab", "b")}) == 6
    assert block_key(b"x", 1, 23) != block_key(b"x", 12, 3)
