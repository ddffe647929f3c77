"""Work that threads share, and BLAS with one thread: for as long as anybody asks for it."""

from __future__ import annotations

import threading

import pytest

from gossamer import threads


class Library:
    """A library with some threads."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads

    def set_num_threads(self, count: int) -> None:
        self.num_threads = count


def test_threads_begin_nothing_more_for_whom_an_interrupt_has_ended() -> None:
    """The end of a process waits for all that its threads were given: minutes, where items are large ones."""
    here, begun, go_on = threading.get_ident(), [], threading.Event()

    def work(item: int) -> None:
        if threading.get_ident() == here:
            raise KeyboardInterrupt
        begun.append(item)
        go_on.wait(60)

    with pytest.raises(KeyboardInterrupt):
        list(threads.in_order(work, range(20), threads=2))
    go_on.set()
    workers = threads._workers(1)
    workers.submit(int).result(60)  # behind all that was given to them
    assert len(begun) <= 1


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
