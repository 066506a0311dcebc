"""Work in threads: order, errors, and nested use."""

import threading
import time

import pytest

from tamis.io.threads import POOL_SIZE, choose_threads, run_in_threads


def test_results_come_in_the_order_of_the_items() -> None:
    assert run_in_threads(lambda number: number * 2, range(1000), threads=8) == [number * 2 for number in range(1000)]


def test_no_items_and_one_thread() -> None:
    assert run_in_threads(str, []) == []
    assert run_in_threads(lambda _: threading.current_thread(), [1, 2], threads=1) == [threading.current_thread()] * 2


def test_items_run_at_the_same_time() -> None:
    barrier = threading.Barrier(4, timeout=30)
    assert len(run_in_threads(lambda _: barrier.wait(), range(4), threads=4)) == 4


def test_the_error_of_an_item_is_raised_and_the_rest_is_not_started() -> None:
    begun: list[int] = []

    def fail_at_three(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise ValueError("three")
        return number

    with pytest.raises(ValueError, match="three"):
        run_in_threads(fail_at_three, range(100_000), threads=4)
    assert len(begun) < 100_000


def test_an_error_in_a_thread_of_the_pool_is_raised_too() -> None:
    caller = threading.current_thread()
    barrier = threading.Barrier(2, timeout=30)

    def fail_elsewhere(_: int) -> None:
        barrier.wait()
        if threading.current_thread() is not caller:
            raise KeyError("elsewhere")

    with pytest.raises(KeyError, match="elsewhere"):
        run_in_threads(fail_elsewhere, range(2), threads=2)


def test_nested_calls_continue_when_every_thread_is_busy() -> None:
    def outer(number: int) -> int:
        return sum(run_in_threads(lambda inner: inner * number, range(10), threads=8))

    wide = POOL_SIZE * 4
    assert run_in_threads(outer, range(wide), threads=wide) == [45 * number for number in range(wide)]


def test_remote_work_takes_more_threads_than_local_work_and_never_more_than_32(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, local, remote in ((2, 4, 8), (64, 128, 32)):
        monkeypatch.setattr("os.cpu_count", lambda processors=processors: processors)
        assert (choose_threads(is_local=True), choose_threads(is_local=False)) == (local, remote)


def test_a_patient_caller_runs_short_work_in_its_own_thread() -> None:
    workers = run_in_threads(lambda _: threading.current_thread(), range(50), threads=8, patience=60)
    assert workers == [threading.current_thread()] * 50


def test_a_caller_gets_more_threads_after_its_patience() -> None:
    barrier = threading.Barrier(3, timeout=30)
    started = time.perf_counter()

    def work(number: int) -> int | bool:
        if number > 0:
            return barrier.wait() < 3
        while time.perf_counter() - started < 0.01:
            pass
        return number

    # The caller runs the first item alone; the others wait for each other.
    assert run_in_threads(work, range(4), threads=4, patience=1e-6) == [0, True, True, True]


def test_an_error_of_a_patient_caller_stops_the_work() -> None:
    begun: list[int] = []

    def fail_at_three(number: int) -> None:
        begun.append(number)
        if number == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        run_in_threads(fail_at_three, range(1000), threads=1, patience=60)
    assert begun == [0, 1, 2, 3]
