"""A program of a language that only uses the C library: unchanged.py LIBRARY MOUNT OUTSIDE"""

import ctypes
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading

library, mount, outside = ctypes.CDLL(sys.argv[1], use_errno=True), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])


def check(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def begin():
    check(library.fs_tx_begin())


def commit():
    check(library.fs_tx_commit())


def abort():
    check(library.fs_tx_abort())


def seen_outside(path):
    return subprocess.run(["test", "-e", path]).returncode == 0


(mount / "tree" / "deep").mkdir(parents=True)
(mount / "tree" / "file").write_text("content")
with open(mount / "log", "a") as log:
    log.write("one\n")
    log.flush()
    begin()
    log.write("two\n")
    log.flush()
    shutil.copytree(mount / "tree", mount / "copy")
    shutil.move(mount / "tree", mount / "moved")
    shutil.copy(mount / "log", outside / "log")
    shutil.move(outside / "log", mount / "came")
    with tempfile.NamedTemporaryFile(dir=mount, delete=False, mode="w") as temporary:
        json.dump({"a": 1}, temporary)
    os.replace(temporary.name, mount / "data.json")
    assert sorted(os.listdir(mount)) == ["came", "copy", "data.json", "log", "moved"], os.listdir(mount)
    assert [str(path.relative_to(mount)) for path in sorted(mount.rglob("*"))].count("copy/file") == 1
    assert not seen_outside(mount / "copy") and seen_outside(mount / "tree")
    commit()
    log.write("three\n")
assert (mount / "log").read_text() == "one\ntwo\nthree\n" and (mount / "came").read_text() == "one\ntwo\n"
assert (mount / "moved" / "file").read_text() == "content" and not (mount / "tree").exists()

begin()
shutil.rmtree(mount / "moved")
(mount / "new").write_bytes(os.urandom(100000))
worker = threading.Thread(target=lambda: (mount / "by_thread").write_text("outside"))
worker.start()
worker.join()
abort()
assert (mount / "moved" / "file").exists() and not (mount / "new").exists() and (mount / "by_thread").exists()

begin()
database = sqlite3.connect(mount / "database")
database.execute("create table t(a)")
database.execute("insert into t values (1), (2)")
database.commit()
database.close()
abort()
assert not (mount / "database").exists()
begin()
database = sqlite3.connect(mount / "database")
with database:
    database.execute("create table t(a)")
    database.execute("insert into t values (1), (2)")
commit()
assert database.execute("select sum(a) from t").fetchone() == (3,)
database.close()

begin()
os.chdir(mount / "copy")
pathlib.Path("relative").write_text("relative")
assert os.getcwd() == str(mount / "copy")
commit()
assert os.getcwd() == str(mount / "copy") and pathlib.Path("relative").read_text() == "relative"
print("python: all well")
