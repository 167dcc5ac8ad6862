"""Files: they appear whole or not at all, keep their mode and links, and what cannot be written is refused before."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import stat
import threading
import time

import pytest

import elman
from elman.errors import ArgumentError, WriteError
from elman.files import check_source, check_target, listed, quoted, replacing, shown


def write(path, text="new"):
    with replacing(path) as temporary:
        temporary.write_text(text)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755, 0o200])
def test_the_mode_stays(tmp_path, mode):
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(mode)
    write(target)
    assert stat.S_IMODE(target.stat().st_mode) == mode
    target.chmod(0o600)
    assert target.read_text() == "new"


def test_nobody_else_may_read_while_a_private_file_is_written(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(0o600)
    with replacing(target) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        temporary.write_text("new")


def test_a_new_file_has_the_mode_of_the_umask_which_is_never_set(run_script, tmp_path):
    run_script(f"""
        import os, stat
        from pathlib import Path
        from elman.files import replacing
        for mask in (0o022, 0o077, 0o002):
            os.umask(mask)
            def fail(*_):
                raise AssertionError("the umask is that of all threads")
            kept, os.umask = os.umask, fail
            target = Path({str(tmp_path)!r}) / f"{{mask}}.txt"
            with replacing(target) as temporary:
                temporary.write_text("new")
            os.umask = kept
            assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask
    """)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_one_and_its_target_is_written(tmp_path, there):
    (tmp_path / "deep").mkdir()
    target, link, second = tmp_path / "deep" / "a.txt", tmp_path / "link.txt", tmp_path / "second.txt"
    if there:
        target.write_text("old")
    link.symlink_to("deep/a.txt")
    second.symlink_to(link)
    write(second)
    assert link.is_symlink()
    assert second.is_symlink()
    assert target.read_text() == "new"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.txt"]


def test_a_pipe_is_written_to(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write(pipe, "all of it")
    reader.join(30)
    assert got == [b"all of it"]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_devices_stay_devices():
    write("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_disk_is_one_error_of_ours():
    with pytest.raises(WriteError, match="could not write /dev/full: No space left") as caught:
        write("/dev/full")
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == errno.ENOSPC
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.errno) == (str(caught.value), errno.ENOSPC)


@pytest.mark.parametrize("way", ["text", "safetensors", "onnx", "picture"])
def test_every_writer_says_so_on_a_full_disk(run_script, tmp_path, way):
    """A limit on the size of files stands for the disk; the old file stays, and nothing else."""
    pytest.importorskip({"text": "os", "picture": "matplotlib"}.get(way, way))
    run_script(
        f"""
        import os, resource, elman
        from pathlib import Path
        from elman.files import replacing
        from elman.errors import WriteError
        path = Path({str(tmp_path)!r}) / "a.png"
        path.write_text("old")
        layer = elman.RNN(20, 60, rng=0)
        def text():
            with replacing(path) as temporary:
                temporary.write_text("new" * 10000)
        def picture():
            from matplotlib.figure import Figure
            from elman.plotting.picture import save_picture
            save_picture(Figure(), path, 600)
        write = dict(text=text, picture=picture, onnx=lambda: elman.interop.to_onnx(layer, path),
                     safetensors=lambda: elman.interop.save_safetensors(layer, path))[{way!r}]
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        if {way!r} == "picture":
            import matplotlib.figure, matplotlib.font_manager
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        try:
            write()
        except WriteError as error:
            assert "a.png" in str(error), error
        else:
            raise AssertionError("not noticed")
        assert path.read_text() == "old"
        assert os.listdir(path.parent) == ["a.png"]
        """,
        MPLBACKEND="Agg",
    )


def test_standard_output_that_goes_to_a_file_keeps_what_is_there(tmp_path, run_script):
    """Written where it stands: neither truncated nor replaced."""
    out = tmp_path / "out.txt"
    run_script(f"""
        import os
        from elman.files import replacing
        handle = os.open({str(out)!r}, os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(handle, 1)
        print("before")
        with replacing("/dev/stdout") as temporary:
            temporary.write_text("content\\n")
        print("after")
    """)
    assert out.read_text() == "before\ncontent\nafter\n"


def test_temporary_files_of_killed_runs_are_removed(tmp_path, run_script):
    target, other = tmp_path / "a.txt", tmp_path / "b.txt"
    for path in (target, other):
        with pytest.raises(AssertionError, match="exit status -9"):
            run_script(f"""
                import os, signal
                from elman.files import replacing
                with replacing({str(path)!r}) as temporary:
                    temporary.write_text("half")
                    os.kill(os.getpid(), signal.{signal.SIGKILL.name})
            """)
    left = list(tmp_path.iterdir())
    assert len(left) == 2
    write(target)
    assert len(list(tmp_path.iterdir())) == 3, "they may be of a run that still goes on"
    for path in left:
        os.utime(path, (time.time() - 7200,) * 2)
    write(target)
    assert len(list(tmp_path.iterdir())) == 2, "that of the other file stays"
    write(other)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "b.txt"]


@pytest.mark.parametrize("name", ["n" * 245 + ".txt", "ü" * 122 + ".txt", "n." + "s" * 240, ".hidden", "x.", "a b\n.t"])
def test_names_of_any_length_that_a_file_can_have(tmp_path, name):
    write(tmp_path / name)
    assert (tmp_path / name).read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_cannot_be_written_is_refused_before(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "missing" / "a.txt")
    for path, error, words in [
        (tmp_path, IsADirectoryError, "it is a folder"),
        (".", IsADirectoryError, "it is a folder"),
        ("", IsADirectoryError, "it is a folder"),
        (f"{tmp_path}/new/", IsADirectoryError, "it is a folder"),
        (tmp_path / "missing" / "a.txt", FileNotFoundError, "missing does not exist"),
        (tmp_path / "dangling", FileNotFoundError, "missing does not exist"),
        (tmp_path / "loop", OSError, "symbolic links"),
        (tmp_path / ("n" * 300), OSError, "too long"),
        ("a\0b", ArgumentError, "NUL"),
        ("\ud800", ArgumentError, "a name that a file can have"),
    ]:
        for refuse in (check_target, write):
            with pytest.raises(error, match=words):
                refuse(path)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_permissions_are_asked_before(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(0o444)
    with pytest.raises(PermissionError, match="chmod"):
        check_target(target)
    target.chmod(0o644)
    tmp_path.chmod(0o555)
    with pytest.raises(PermissionError, match="for the folder"):
        check_target(target)
    tmp_path.chmod(0o755)


def test_only_regular_files_are_read(tmp_path):
    (tmp_path / "endless.npz").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "endless.npz", tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ArgumentError, match="must be a regular file"):
            check_source(path)
    with pytest.raises(IsADirectoryError):
        check_source(tmp_path)
    (tmp_path / "a").write_bytes(b"12345")
    assert check_source(tmp_path / "a") == 5


def test_names_in_messages():
    assert shown("weight_hh_l0") == "weight_hh_l0"
    assert shown("a\x1b[31m\nb\u202e\ud800") == r"a\x1b[31m\nb\u202e\ud800"
    assert len(shown("n" * 10**6)) == 80
    assert shown("begin" + "n" * 100 + "end").startswith("begin")
    assert shown("begin" + "n" * 100 + "end").endswith("end")
    assert shown("n" * 80) == "n" * 80
    assert (quoted("a"), quoted("it's")) == ("'a'", '"it\'s"')
    assert listed(range(15)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, and 3 more"


@pytest.mark.parametrize("write", ["safetensors", "onnx"])
def test_weights_go_through_a_link_and_stay_private(tmp_path, write):
    pytest.importorskip(write)
    layer, target, link = elman.RNN(2, 3, rng=0), tmp_path / "w", tmp_path / "link"
    target.touch()
    target.chmod(0o600)
    link.symlink_to(target)
    {"safetensors": lambda: elman.interop.save_safetensors(layer, link),
     "onnx": lambda: elman.interop.to_onnx(layer, link)}[write]()  # fmt: skip
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.stat().st_size > 100


def test_a_picture_without_a_suffix_is_a_png_under_that_very_name(tmp_path):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    picture = pytest.importorskip("elman.plotting.picture")
    picture.save_picture(figure, tmp_path / "curve", 20)
    assert (tmp_path / "curve").read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir()] == ["curve"]
    picture.save_picture(figure, tmp_path / "curve.SVG", 20)
    assert b"<svg" in (tmp_path / "curve.SVG").read_bytes()
    with pytest.raises(ArgumentError, match=r"x\.xyz must end as a picture does, .*\.png.*got \.xyz"):
        picture.check_picture(tmp_path / "x.xyz")
