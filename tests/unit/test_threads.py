"""BLAS with one thread: for as long as anybody asks for it."""

from __future__ import annotations

import pytest

from gossamer import threads


class Library:
    """A library with some threads."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads

    def set_num_threads(self, count: int) -> None:
        self.num_threads = count


def test_blas_has_one_thread_until_the_last_who_asked_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever leaves first would else give the others' products to more threads."""
    libraries = [Library(4), Library(1)]
    monkeypatch.setattr(threads, "_blas", lambda: libraries)
    first, second = threads.one_blas_thread(), threads.one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert [library.num_threads for library in libraries] == [1, 1]
    second.__exit__(None, None, None)
    assert [library.num_threads for library in libraries] == [4, 1]


def test_an_error_puts_the_threads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(3)
    monkeypatch.setattr(threads, "_blas", lambda: [library])
    with pytest.raises(KeyError), threads.one_blas_thread():
        raise KeyError
    assert library.num_threads == 3
