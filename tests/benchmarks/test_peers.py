"""The comparison with other packages: all agree, no time without a right answer, means and tables by closed forms."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numba
import numpy as np
import pytest

import elman

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import cases, sides
from benchmarks.commands import peers, ratios, scaling
from benchmarks.comparison import report, rows, threads
from benchmarks.comparison import turns as comparison
from benchmarks.sides import workers

pytestmark = pytest.mark.ci

ROOT = Path(__file__).resolve().parents[2]
TINY = (7, 3, 2, 5)
needs_jit = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="measures compiled code")
OTHERS = [name for name in sides.SIDES if name != "elman"]


def installed(name):
    """The name, skipped where its packages are missing."""
    missing = name not in sides.available()
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=f"{name} is not installed"))


@pytest.fixture(scope="module")
def processes():
    """Packages in processes of their own, begun when first asked for."""
    begun = {}

    def get(name):
        if name not in begun:
            begun[name] = workers.Peer(name, 1)
        return begun[name]

    yield get
    for peer in begun.values():
        peer.__exit__()


@needs_jit
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("cell", cases.CELLS)
@pytest.mark.parametrize("name", [installed(name) for name in OTHERS])
def test_every_package_agrees_with_ours(processes, name, cell, dtype, ragged):
    if name == "jax" and ragged == (dtype == "float64"):
        pytest.skip("seconds of compiling: float64 without lengths and float32 with them show all there is")
    case = cases.make_case(TINY, dtype, cell, ragged=ragged)
    passes = [p for p in sides.PASSES if not (ragged and p == "step")]
    ours, theirs = (processes(which).ask("prepare", case, passes) for which in ("elman", name))
    able = [p for p in passes if sides.SIDES[name].can(case, p)]
    assert list(theirs) == able
    assert name in ("onnxruntime", "keras") or able == passes
    for p in able:
        comparison.check_agreement(ours[p], theirs[p], dtype)
        if p == "forward":
            assert set(theirs[p]) == {"output", "hn"} | ({"cn"} if cell == "LSTM" else set())
        if p == "forward_backward":
            assert set(theirs[p]) == {"output", "d_x"} | {f"d_{key}" for key in case.weights}
        if ragged:
            beyond = np.arange(TINY[0])[:, None] >= case.lengths
            assert beyond.any()
            assert not theirs[p]["output"][beyond].any()


def test_a_ragged_case_has_no_gradient_beyond_its_lengths():
    dense, ragged = (cases.make_case(TINY, "float64", "GRU", ragged=r) for r in (False, True))
    beyond = np.arange(TINY[0])[:, None] >= ragged.lengths
    assert not ragged.d_output[beyond].any()
    np.testing.assert_array_equal(ragged.d_output[~beyond], dense.d_output[~beyond])


@pytest.mark.parametrize("name", [installed(name) for name in OTHERS])
def test_a_side_imports_its_own_package_only(name):
    """Before it is made none; afterwards its own."""
    roots = {root for other in sides.SIDES for root in sides.NEEDED.get(other, (other,))} - {"elman"}
    code = (
        "import sys; from benchmarks.sides import SIDES, available; available()\n"
        f"print(sorted({roots} & set(sys.modules))); SIDES[{name!r}](1); print(sorted({roots} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    before, after = out.splitlines()[-2:]
    assert before == "[]"
    allowed = set(sides.NEEDED.get(name, (name,)))
    found = set(json.loads(after.replace("'", '"')))
    assert name in found <= allowed


@needs_jit
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system keeps no process to a core")
def test_a_worker_is_kept_to_its_cores():
    with workers.Peer("elman", 1) as peer:
        peer.ask("version")
        assert len(os.sched_getaffinity(peer.process.pid)) == 1


ANSWERS = {"output": np.array([[1.0, -2.0], [0.5, 1e-12]]), "d_x": np.array([3.0, -4.0])}


def test_agreement_lets_rounding_pass():
    ours = {"output": ANSWERS["output"] + 1e-11, "d_x": ANSWERS["d_x"]}
    comparison.check_agreement(ours, ANSWERS, "float64")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"output": ANSWERS["output"] + 3e-10}, "output differs by 3.0e-10, with 2.0e[+]00"),
        ({"d_x": ANSWERS["d_x"] * [1, 1 + 1e-9]}, "d_x differs"),
        ({"d_x": np.array([3.0, np.nan])}, "d_x differs by nan"),
        ({"d_x": np.array([3.0, -4.0, 0.0])}, r"\(3,\) against"),
        ({"d_x": ANSWERS["d_x"].astype(np.float32)}, "float32"),
        ({"hn": ANSWERS["d_x"]}, "'hn'"),
    ],
)
def test_agreement_refuses(change, words):
    with pytest.raises(comparison.Disagreement, match=words):
        comparison.check_agreement(ANSWERS | change, ANSWERS, "float64")


class Recorder:
    """A side whose answers and times are given, and that writes down what it was asked."""

    def __init__(self, answers, times=(), log=None):
        self.answers, self.times, self.log = answers, iter(times), [] if log is None else log

    def revive(self):
        pass

    def ask(self, method, *arguments):
        self.log.append((self, method))
        if method == "answer":
            return self.answers
        if method == "measure":
            time = next(self.times)
            if isinstance(time, Exception):
                raise time
            return time
        return None

    @property
    def asked(self):
        return [method for side, method in self.log if side is self]


PLAN = comparison.Plan("RNN", TINY, "float64", ("forward",))


def test_no_time_without_a_right_answer():
    ours = Recorder(ANSWERS, [1e-3] * 20)
    wrong = Recorder(ANSWERS | {"d_x": np.zeros(2)}, [1e-3] * 20)
    right = Recorder(ANSWERS, [2e-3] * 20)
    (row,) = comparison.compare({"elman": ours, "wrong": wrong, "right": right}, PLAN, 0.1)
    assert "measure" not in wrong.asked
    assert "d_x" in row.failed["wrong"]
    assert set(row.times) == {"elman", "right"}
    assert row.ratio.peer == "right"


def test_ours_is_not_timed_where_no_peer_agrees():
    ours, wrong = Recorder(ANSWERS, [1e-3] * 20), Recorder(ANSWERS | {"d_x": np.zeros(2)})
    absent = Recorder(None)
    (row,) = comparison.compare({"elman": ours, "wrong": wrong, "absent": absent}, PLAN, 0.1)
    assert "measure" not in ours.asked
    assert row.times == {}
    assert set(row.failed) == {"elman", "wrong"}
    assert row.ratio is None


def test_ours_alone_is_timed_unchecked():
    (row,) = comparison.compare({"elman": Recorder(ANSWERS, [1e-3] * 20)}, PLAN, 0.1)
    assert set(row.times) == {"elman"}
    assert row.ratio is None


def test_a_crash_is_part_of_the_row():
    ours = Recorder(ANSWERS, [1e-3] * 20)
    crashing = Recorder(ANSWERS, [2e-3, RuntimeError("Traceback\n ValueError: out of luck"), *[2e-3] * 20])
    right = Recorder(ANSWERS, [3e-3] * 20)
    (row,) = comparison.compare({"elman": ours, "crashing": crashing, "right": right}, PLAN, 0.1)
    assert row.failed == {"crashing": "ValueError: out of luck"}
    assert row.ratio == ("right", pytest.approx(3), pytest.approx(3), pytest.approx(3))


def test_sides_take_turns_and_a_short_first_turn_does_not_count():
    log = []
    ours, theirs = Recorder(ANSWERS, [9.0e-3, 1e-3, 2e-3, 3e-3], log), Recorder(ANSWERS, [9e-3, 4e-3, 5e-3, 6e-3], log)
    times = comparison.take_turns({"elman": ours, "peer": theirs}, "forward", 0.03, {})
    assert [side for side, _ in log] == [ours, theirs] * 4
    assert times == {"elman": [1e-3, 2e-3, 3e-3], "peer": [4e-3, 5e-3, 6e-3]}


def test_a_long_first_turn_counts():
    ours, theirs = Recorder(ANSWERS, [1.0, 2.0, 3.0]), Recorder(ANSWERS, [4.0, 5.0, 6.0])
    times = comparison.take_turns({"elman": ours, "peer": theirs}, "forward", 0.03, {})
    assert times == {"elman": [1.0, 2.0, 3.0], "peer": [4.0, 5.0, 6.0]}


def test_a_slow_peer_has_one_round():
    ours, slow = Recorder(ANSWERS, [1e-3] * 20), Recorder(ANSWERS, [9e-3, 10e-3])
    times = comparison.take_turns({"elman": ours, "slow": slow}, "forward", 0.1, {})
    assert times["slow"] == [10e-3]
    assert len(times["elman"]) == comparison.ROUNDS[1]


def test_more_time_gives_more_rounds_within_bounds():
    def rounds(seconds):
        sides = {name: Recorder(ANSWERS, [0.02] * 40) for name in ("elman", "peer")}
        return len(comparison.take_turns(sides, "forward", seconds, {})["elman"])

    assert [rounds(s) for s in (0.01, 0.2, 5.0)] == [3, 5, 9]


def row(ours, theirs, **changes):
    """A row with one peer."""
    facts = {"cell": "RNN", "shape": (10, 4, 2, 3), "dtype": "float64", "name": "forward_backward", "ragged": False}
    return rows.Row(**(facts | {"steps": 40} | changes), times={"elman": ours, "torch": theirs})


def test_row_of_the_table():
    measured = row([1e-6, 2e-6, 4e-6], [2e-5, 3e-5, 4e-5])
    measured.times["jax"] = [1e-4]
    measured.failed["keras"] = "no luck"
    # 2 * 40 rows * 3 units * 5 terms, three times, in 2 microseconds: 1.8 GF/s
    assert report.row_cells(measured, ["torch", "onnxruntime", "jax", "keras"], 18e9) == [
        "RNN",
        "10, 4, 2, 3",
        "float64",
        "forward + backward",
        "0.00200 (0.00100-0.00400)",
        "0.0300",
        "-",
        "0.100*",
        "failed",
        "torch",
        "15.0 (10.0-20.0)",
        "1.8 (10%)",
    ]


def test_ratio_is_to_the_fastest_peer_and_one_round_stands_for_all():
    measured = row([1.0, 2.0, 4.0], [9.0, 9.0, 9.0])
    measured.times["jax"] = [8.0]
    assert measured.ratio == ("jax", 4.0, 2.0, 8.0)


def test_work_follows_the_valid_steps():
    assert row([1e-3], [1e-3], steps=20, ragged=True).rate == row([1e-3], [1e-3]).rate / 2


def test_geometric_mean():
    assert report.geometric_mean([2.0, 0.5]) == pytest.approx(1)
    assert report.geometric_mean([1.0, 10.0, 100.0]) == pytest.approx(10)
    assert report.geometric_mean([math.e, math.e**3]) == pytest.approx(math.e**2)


MEASURED = [
    row([1.0], [2.0], name="forward"),
    row([1.0], [8.0], name="forward", dtype="float32"),
    row([1.0], [0.5], name="forward", cell="GRU", ragged=True),
    row([1.0], [3.0]),
]


def test_means_by_pass_cell_dtype_and_lengths():
    lines = {}
    for line in report.means_table(MEASURED).splitlines()[2:]:
        name, *values = (cell.strip() for cell in line.strip("|").split("|"))
        lines[name] = values
    assert lines == {
        "all": ["2.00 (n = 3)", "3.00 (n = 1)"],
        "RNN": ["4.00 (n = 2)", "3.00 (n = 1)"],
        "GRU": ["0.500 (n = 1)", "-"],
        "float64": ["1.00 (n = 2)", "3.00 (n = 1)"],
        "float32": ["8.00 (n = 1)", "-"],
        "all of T steps": ["4.00 (n = 2)", "3.00 (n = 1)"],
        "of several lengths": ["0.500 (n = 1)", "-"],
    }


def test_losses_are_listed():
    assert report.losses(MEASURED) == [
        "A peer is faster in 1 of 4 rows:",
        "",
        "- GRU (10, 4, 2, 3, lengths) float64 forward: 0.500 (0.500-0.500), torch",
    ]
    assert report.losses(MEASURED[:2]) == ["A peer is faster in 0 of 2 rows."]


RESULTS = rows.Results({"machine": "a processor"}, 2, {"float32": 2e9, "float64": 1e9}, MEASURED)


def test_results_survive_the_file(tmp_path):
    path = tmp_path / "results.json"
    RESULTS.save(path)
    again = rows.Results.load(path)
    assert again == RESULTS
    assert report.results_text(again) == report.results_text(RESULTS)


def two_threads():
    """Rows with two threads and with one: long with a full gain, long without, short with none, short with a loss."""
    several = [
        row([5e-3], [8e-3]),
        row([9e-3], [3e-3], cell="LSTM"),
        row([1e-3], [1e-3], cell="GRU"),
        row([2e-3], [4e-3], cell="GRU", ragged=True),
    ]
    single = [
        row([9e-3, 1e-2, 2e-2], [1e-2]),
        row([1e-2], [1e-2], cell="LSTM"),
        row([1e-3], [1e-3], cell="GRU"),
        row([1e-3], [8e-3], cell="GRU", ragged=True),
    ]
    return rows.Results({"machine": "a processor"}, 2, {"float32": 2e9, "float64": 1e9}, several, single)


def test_gains_are_of_each_package_beside_itself(tmp_path):
    results = two_threads()
    lines = [[c.strip() for c in line.strip("|").split("|")] for line in threads.scaling_table(results).splitlines()]
    assert lines[0][4:] == ["elman, ms: 1 thread", "2 threads", "elman", "torch"]
    assert [line[4:] for line in lines[2:]] == [
        ["10.0", "5.00", "2.00", "1.25"],
        ["10.0", "9.00", "1.11", "3.33"],
        ["1.00", "1.00", "1.00", "1.00"],
        ["1.00", "2.00", "0.500", "2.00"],
    ]
    path = tmp_path / "two.json"
    results.save(path)
    assert rows.Results.load(path) == results
    assert threads.scaling_text(rows.Results.load(path)) == threads.scaling_text(results)


def test_one_thread_of_two_is_a_table_of_its_own():
    results = dataclasses.replace(two_threads(), about={"threads": "2 each, on as many cores"})
    single = results.one_thread()
    assert (single.rows, single.threads, single.single) == (results.single, 1, [])
    assert single.about["threads"] == "1 each, on as many cores"
    assert single.one_thread() is single
    table = report.results_text(single)
    assert f"({single.rows[0].rate / single.peaks['float64']:.0%})" in table


def test_ratios_are_read_from_a_page():
    single = dataclasses.replace(
        two_threads(), about={"machine": "a processor; Python 3", "threads": "2 each, on as many cores"}
    ).one_thread()
    page = f"# A page\n\n{report.results_text(single)}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    (table,) = ratios.tables(page)
    assert (table.machine, table.threads) == ("a processor", "1")
    expect = [(r.cell, r.dtype, r.title, round(r.ratio.median, 3)) for r in single.rows]
    assert [(p.cell, p.dtype, p.name, p.ratio) for p in table.points] == expect
    assert table.points[-1].shape == "10, 4, 2, 3, lengths"
    assert ratios.tables("nothing") == []


def test_ratios_are_drawn(tmp_path):
    page = (ROOT / "docs" / "performance-tables.md").read_text(encoding="utf-8")
    ratios.draw(ratios.tables(page), tmp_path / "a.png")
    assert plt.imread(tmp_path / "a.png").std() > 0.05  # not blank


def test_gains_that_fall_short_are_listed():
    assert threads.short_of(two_threads()) == [
        "elman gains less than 1.70 times in a call of more than 2 ms, or loses in a shorter one, in 2 of 4 rows:",
        "",
        "- GRU (10, 4, 2, 3, lengths) float64 forward + backward: 0.500, 1.00 ms with one",
        "- LSTM (10, 4, 2, 3) float64 forward + backward: 1.11, 10.0 ms with one",
    ]
    table = threads.gains_table(two_threads()).splitlines()
    assert "1.49 (n = 2) | 0.707 (n = 2)" in table[2]
    assert "2.04 (n = 2) |  1.41 (n = 2)" in table[3]


def test_no_gains_without_one_thread_or_without_a_time():
    assert threads.scaling_text(RESULTS) == ""
    results = two_threads()
    del results.single[0].times["torch"], results.single[1].times["elman"], results.rows[3].times["elman"]
    lines = [[c.strip() for c in line.strip("|").split("|")] for line in threads.scaling_table(results).splitlines()]
    assert [line[4:] for line in lines[2:]] == [
        ["10.0", "5.00", "2.00", "-"],
        ["-", "-", "-", "3.33"],
        ["1.00", "1.00", "1.00", "1.00"],
        ["-", "-", "-", "2.00"],
    ]


def test_text_has_one_table_below_the_facts():
    lines = report.results_text(RESULTS).splitlines()
    assert lines[:2] == ["- machine: a processor", ""]
    table = lines[2 : 4 + len(MEASURED)]
    assert len({len(line) for line in table}) == 1
    assert all(line.startswith("|") for line in table)
    # both threads' peaks count
    assert f"({MEASURED[0].rate / 2e9:.0%})" in table[2]
    assert "What failed:" not in lines


def test_text_says_what_failed():
    broken = row([1.0], [2.0])
    broken.failed["keras"] = "no luck"
    text = report.results_text(rows.Results({}, 1, {"float64": 1e9}, [broken]))
    assert "- RNN (10, 4, 2, 3) float64 forward + backward, keras: no luck" in text


def test_plans_cover_every_combination_once():
    chosen = peers.plans(cases.CELLS, range(len(cases.SHAPES) + len(cases.STREAMED)))
    assert len(set(chosen)) == len(chosen) == 3 * 2 * (len(cases.SHAPES) + len(cases.RAGGED) + len(cases.STREAMED))
    assert {plan.passes for plan in chosen if plan.shape in cases.STREAMED} == {("step",)}
    (plan,) = [plan for plan in peers.plans(["GRU"], [0]) if plan.dtype == "float32"]
    assert plan == ("GRU", cases.SHAPES[0], "float32", sides.WHOLE, False)


def test_budget_leaves_time_for_what_is_to_come():
    todo = peers.plans(["LSTM"], [3, 10])
    peaks = {"float32": 1e12, "float64": 1e12}
    least = sum(plan.least(["elman", "torch"], 1e12) for plan in todo)
    budget = peers.Budget((least + 8.0) / 60, todo, ["elman", "torch"], peaks)
    passes = sum(len(plan.passes) for plan in todo)
    assert budget.share(0) == pytest.approx(8.0 / passes, rel=0.05)
    none = peers.Budget(0, todo, ["elman", "torch"], peaks)
    assert none.share(0) == 2 * comparison.ROUNDS[0] * comparison.SECONDS[0]


def test_markdown_table():
    assert report.markdown_table(["a", "speed"], [["first", "1"], ["x", "22"]]) == (
        "| a     | speed |\n"
        "| ----- | ----: |\n"
        "| first |     1 |\n"
        "| x     |    22 |"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (1.0, "1.00"), (12.34, "12.3"), (123.4, "123"), (12345.0, "12300"), (0.0999951, "0.100")],
)
def test_three_significant_digits(value, text):
    assert report.significant(value) == text


def test_environment_lists_what_changes_a_library(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "OPENBLAS_CORETYPE=Haswell" in peers.environment()
    assert "OMP_NUM_THREADS" not in peers.environment()


def test_a_failure_over_there_comes_back_with_its_traceback():
    with workers.Peer("elman", 1) as peer:
        with pytest.raises(RuntimeError, match="no_such_method"):
            peer.ask("no_such_method")
        assert elman.__version__ in peer.ask("version")
    assert peer.process.returncode == 0


def test_a_dead_process_is_named_and_begun_again():
    with workers.Peer("elman", 1) as peer:
        peer.process.kill()
        peer.process.wait()
        with pytest.raises(RuntimeError, match="process of elman ended"):
            peer.ask("version")
        peer.revive()
        assert elman.__version__ in peer.ask("version")


@needs_jit
@pytest.mark.parametrize("name", [installed("torch")])
def test_comparison_of_two_processes(processes, name):
    plan = comparison.Plan("GRU", TINY, "float32", sides.WHOLE, ragged=True)
    measured = comparison.compare({which: processes(which) for which in ("elman", name)}, plan, 1e-3)
    assert [r.name for r in measured] == list(sides.WHOLE)
    assert all(not r.failed and r.ratio.peer == name and min(r.times["elman"]) > 0 for r in measured)
    assert measured[0].steps < TINY[0] * TINY[1]


def test_scaling_lines_pick_the_points_of_one_axis():
    def point(shape, cell="RNN"):
        return row([1e-3 * shape[0]], [2e-3], shape=shape, cell=cell, name="forward")

    _, B, D, H = scaling.START
    measured = [point((30, B, D, H)), point((10, B, D, H)), point((10, B, D, 2 * H)), point((20, B, D, H), "GRU")]
    assert scaling.line(measured, "T", "RNN", "forward", "elman") == ([10, 30], [10.0, 30.0])
    assert scaling.line(measured, "T", "GRU", "forward", "torch") == ([20], [2.0])
    assert scaling.line(measured, "T", "RNN", "forward_backward", "elman") == ([], [])


def test_scaling_figure_has_a_line_a_cell_and_package():
    pytest.importorskip("matplotlib")
    measured = [
        row([1e-3], [2e-3], shape=shape, cell=cell, name=name)
        for shape in scaling.shapes(scaling.VALUES) for cell in cases.CELLS for name in sides.WHOLE
    ]  # fmt: skip
    axes = scaling.plot(measured).axes
    assert len(axes) == 6
    for ax in axes:
        assert len(ax.lines) == 6
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert all(len(line.get_xdata()) == len(scaling.VALUES["B"]) for line in axes[1].lines)
