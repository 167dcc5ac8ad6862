"""Which row is which, against the same in NumPy and by counting; and what is kept of it."""

from __future__ import annotations

import itertools
import threading
import tracemalloc

import numpy as np
import pytest

import elman
from elman.layers.engine import schedule as schedules
from elman.layers.engine.schedule import dense, segmented


def pieces(T, B, lengths, reset, reverse):
    """Each piece of each sequence, in order of their lengths: (start, stop, sequence, first, last, carried)."""
    found = []
    for b in range(B):
        stop = T if lengths is None else int(lengths[b])
        cuts = [] if reset is None else [t for t in range(1, stop) if reset[t, b]]
        edges = [0, *cuts, stop]
        for i, (start, end) in enumerate(itertools.pairwise(edges)):
            first, last = i == 0, i == len(edges) - 2
            restarts = reset is not None and end > start and reset[start, b]
            found.append((start, end, b, first, last, last if reverse else first and not restarts))
    return sorted(found, key=lambda piece: piece[0] - piece[1])


CASES = [
    (T, B, some, resets, reverse)
    for T, B in ((0, 0), (0, 3), (4, 0), (1, 1), (7, 1), (9, 5), (40, 13))
    for some in (False, True)
    for resets in (0, 0.2, 0.9)
    for reverse in (False, True)
]


@pytest.mark.parametrize(("T", "B", "some", "resets", "reverse"), CASES)
def test_rows_are_the_pieces_in_order_of_their_lengths(T, B, some, resets, reverse):
    rng = np.random.default_rng(T * 100 + B)
    lengths = rng.integers(0, T + 1, B) if some else None
    reset = rng.random((T, B)) < resets if resets else None
    made, expected = segmented(T, B, lengths, reset, reverse), pieces(T, B, lengths, reset, reverse)
    stops = np.full(B, T) if lengths is None else lengths
    assert made.n_valid == stops.sum()
    assert (made.outer_T, made.outer_B, made.B) == (T, B, len(expected))
    assert made.lengths.tolist() == [stop - start for start, stop, *_ in expected]
    assert max((int(n) for n in made.lengths), default=0) == made.T or made.plain
    assert made.active.tolist() == [int((made.lengths > t).sum()) for t in range(made.T)]
    assert made.sequence.tolist() == [b for _, _, b, *_ in expected]
    assert made.carried.tolist() == [carried for *_, carried in expected]
    assert made.stops_at.tolist() == stops.tolist()
    begins, ends = (4, 3) if reverse else (3, 4)
    for rows, which in ((made.initial, begins), (made.final, ends)):
        assert rows.tolist() == [next(i for i, p in enumerate(expected) if p[2] == b and p[which]) for b in range(B)]
    inner, outer = made.pairs()
    at = [(stop - 1 - t if reverse else start + t, b) for start, stop, b, *_ in expected for t in range(stop - start)]
    of_rows = [(t, p) for p, n in enumerate(made.lengths) for t in range(n)]
    by_row = dict(zip(of_rows, at, strict=True))
    assert [divmod(int(i), made.B) for i in inner] == sorted(by_row)
    assert [divmod(int(i), B) for i in outer] == [by_row[place] for place in sorted(by_row)]
    assert all(made.caller_place(*place) == by_row[place] for place in by_row)


def test_sequences_of_all_steps_are_dense():
    assert segmented(6, 3, np.full(3, 6), None, True) is dense(6, 3, True)
    assert segmented(6, 3, np.array([6, 5, 6]), None, False).plain is False


class TestNothingGoesStale:
    """No schedule outlives the lengths and resets that it was made from."""

    @pytest.fixture
    def layer(self):
        return elman.GRU(3, 5, bidirectional=True, rng=0)

    def test_lengths_edited_in_place(self, layer):
        x, lengths = np.random.default_rng(0).standard_normal((6, 3, 3)), np.array([6, 2, 4])
        layer(x, lengths=lengths)
        lengths[:] = [1, 6, 3]
        output, hn = layer(x, lengths=lengths)
        again, h_again = layer(x, lengths=[1, 6, 3])
        assert np.array_equal(output, again)
        assert np.array_equal(hn, h_again)
        assert not output[1:, 0].any()
        assert output[5, 1].all()

    def test_resets_edited_in_place(self, layer):
        x, reset = np.random.default_rng(0).standard_normal((6, 3, 3)), np.zeros((6, 3), bool)
        whole = layer(x, reset=reset)[0]
        reset[3, 1] = True
        cut = layer(x, reset=reset)[0]
        assert np.array_equal(whole[:, [0, 2]], cut[:, [0, 2]])
        assert np.array_equal(cut[:, 1], np.concatenate([layer(x[:3, 1])[0], layer(x[3:, 1])[0]]))

    def test_a_trace_keeps_the_lengths_it_was_made_with(self, layer):
        x, lengths = np.random.default_rng(0).standard_normal((6, 3, 3)), np.array([6, 2, 4])
        expected = layer.backward(layer.trace(x, lengths=[6, 2, 4]), np.ones((6, 3, 10)))
        trace = layer.trace(x, lengths=lengths)
        lengths[:] = 6
        got = layer.backward(trace, np.ones((6, 3, 10)))
        assert np.array_equal(expected.theta, got.theta)
        assert np.array_equal(expected.x, got.x)

    def test_two_threads_with_other_lengths_each(self, layer):
        x = np.random.default_rng(0).standard_normal((6, 3, 3))
        several = [[6, 2, 4], [1, 5, 3]]
        expected = [layer(x, lengths=lengths)[0] for lengths in several]
        wrong = []

        def work(i):
            for _ in range(200):
                if not np.array_equal(layer(x, lengths=several[i])[0], expected[i]):
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


class TestWhatIsKept:
    """Between calls, little: no step and no sequence of a long call has a number that stays."""

    def test_a_schedule_counts_rows_and_steps(self):
        T, B = 1000, 300
        lengths = np.random.default_rng(0).integers(0, T, B)
        made = segmented(T, B, lengths, None, True)
        numbers = sum(value.size for value in vars(made).values() if isinstance(value, np.ndarray))
        assert numbers < T + 10 * B

    def test_only_short_schedules_are_kept(self):
        assert dense(schedules.KEPT - 3, 3, True) is dense(schedules.KEPT - 3, 3, True)
        assert dense(schedules.KEPT, 3, True) is not dense(schedules.KEPT, 3, True)

    @pytest.mark.parametrize("options", [{}, {"lengths": [70_000, 9, 50_000, 60_000]}])
    def test_a_long_call_leaves_little_behind(self, options):
        layer = elman.RNN(3, 4, bidirectional=True, rng=0)
        x = np.zeros((70_000, 4, 3))
        layer(x[:9])
        layer.backward(layer.trace(x[:9]), np.ones((9, 4, 8)))
        tracemalloc.start()
        try:
            layer(x, **options)
            trace = layer.trace(x, **options)
            layer.backward(trace, trace.output)
            del trace
            left = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert left < 1 << 24, f"{left / 1e6:.1f} MB"
