"""Make `.venv` ready to run foldhouse: Python, Java, the locked packages and the project itself.

    python3 scripts/setup.py            a .venv of this very Python, or of another that is installed if this will not do
    python3 scripts/setup.py --keep     the same, but a .venv that is ready stays, whatever its Python (what make does)
    python3 scripts/setup.py --docs     with what builds the site, as in CI (the environment variable CI is set)

Every make target runs it first; if nothing is missing, it takes a fraction of a second and prints nothing. It may be
interrupted, and started twice at once: a file lock lets one run at a time, and the next run creates an unfinished
`.venv` again. Packages come from the lock files, by hash. Changed lock files are installed again.

Standard library only, and no syntax newer than Python 3.8, so that an old Python gets a sentence and not a traceback.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STATE = VENV / ".foldhouse-setup.json"
LOG = VENV / "setup.log"
BUILD_LOCK, LOCK, DOCS_LOCK = "requirements-build.lock", "requirements.lock", "requirements-docs.lock"

THIS_PYTHON = "{}.{}.{}".format(*sys.version_info[:3])
OLDEST, NEWEST = (3, 11), (3, 13)  # newer ones wait for a wheel of datasketches
SUITABLE = "{}.{} to {}.{} will".format(*OLDEST, *NEWEST)
JAVA_NEEDED = 17
INSTALL_JAVA = (
    "install it with `sudo apt-get install openjdk-17-jre-headless` on Debian or Ubuntu, with `brew install "
    "openjdk@17` and JAVA_HOME=$(brew --prefix openjdk@17) on macOS, or elsewhere put any JDK from 17 on the PATH "
    "or in JAVA_HOME"
)


class CannotSetUp(Exception):
    """Something only the user can change; its text is the one sentence to print."""


class OtherPython(Exception):
    """This Python will not do, and the one that is named here will."""


def main():
    arguments = argparse.ArgumentParser(description="Make .venv ready to run foldhouse.")
    arguments.add_argument("--keep", action="store_true", help="keep a .venv that is ready, whatever its Python")
    arguments.add_argument("--docs", action="store_true", help="with what builds the site of the documentation")
    given = arguments.parse_args()
    try:
        check_java()
        with one_at_a_time():
            set_up(given.keep, given.docs)
            if os.environ.get("CI") and not given.docs:
                try:
                    set_up(keep=True, with_docs=True)
                except CannotSetUp as problem:  # the test of the site is skipped then, and says so
                    say("the site cannot be built here: {}".format(problem))
                    set_up(keep=True, with_docs=False)
    except OtherPython as python:
        say("Python {} will not do ({}), taking {}".format(THIS_PYTHON, SUITABLE, python))
        os.execvp(str(python), [str(python), __file__, *sys.argv[1:]])
    except CannotSetUp as problem:
        print("foldhouse: {}".format(problem), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("foldhouse: set-up interrupted; the next run repairs it", file=sys.stderr)
        return 130
    return 0


def set_up(keep, with_docs):
    """Bring `.venv` from whatever it is to what the lock files and `pyproject.toml` say."""
    state = read_state()
    wanted = {
        "complete": True,
        "root": str(ROOT),
        "python": "{}.{}".format(*sys.version_info[:2]),
        "locks": digest(BUILD_LOCK, LOCK),
        "project": digest("pyproject.toml"),
    }
    if with_docs or state.get("docs"):  # once installed, it is kept up to date
        wanted["docs"] = digest(DOCS_LOCK)
    usable = state.get("complete") and state.get("root") == wanted["root"] and VENV_PYTHON.exists()
    if usable and keep:
        wanted["python"] = state["python"]
    if usable and state == wanted:
        return
    began = time.monotonic()
    if not usable or state["python"] != wanted["python"]:
        check_python()
        check_ours()
        say("making .venv with Python {} (once: some 700 MB to fetch, a few minutes)".format(THIS_PYTHON))
        create_venv(wanted)
        state = {}
    elif state["locks"] != wanted["locks"] or state.get("docs") != wanted.get("docs"):
        say("the lock files have changed, bringing .venv up to date")
    write_state(dict(wanted, complete=False))
    if state.get("locks") != wanted["locks"]:
        # pyspark is published as source only. Nothing else is built: a build without isolation needs pinned tools.
        pip("--require-hashes", "--only-binary=:all:", "-r", BUILD_LOCK)
        pip("--require-hashes", "--no-build-isolation", "--only-binary=:all:", "--no-binary=pyspark", "-r", LOCK)
    if state.get("docs") != wanted.get("docs"):
        # What is there stays as it is, and counts as complete, if these cannot be had.
        write_state({name: value for name, value in dict(state, **wanted).items() if name != "docs"})
        pip("--require-hashes", "--only-binary=:all:", "-r", DOCS_LOCK)
    pip("--no-deps", "--no-build-isolation", "-e", ".")
    write_state(wanted)
    say(".venv is ready ({:.0f} s)".format(time.monotonic() - began))


def check_java():
    """Raise unless the Java that Spark will start is 17 or newer: the one of JAVA_HOME, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if home:
        place = "in JAVA_HOME ({})".format(home)
    else:
        place = "at {}".format(java) if java else "on the PATH"
    printed = ""
    if java:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            answer = subprocess.run(
                [java, "-version"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=60,
                universal_newlines=True,
            )
            printed = answer.stdout
    found = re.search(r'version "(?:1\.)?(\d+)[^"]*"', printed)  # 1.8.0_392 is Java 8
    version = int(found.group(1)) if found else 0
    if version < JAVA_NEEDED:
        what = "Java {}".format(version) if version else "no Java"
        raise CannotSetUp(
            "Spark needs Java {} or newer, and there is {} {}; {}.".format(JAVA_NEEDED, what, place, INSTALL_JAVA)
        )


def check_python():
    """Raise unless this Python can make the virtual environment."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        for name in ("python3.12", "python3.13", "python3.11"):
            if makes_venvs(name):
                raise OtherPython(name)
        raise CannotSetUp(
            "Python {} at {} will not do ({}); install another beside it, with `sudo apt-get install python3.12-venv` "
            "on Debian or Ubuntu or `brew install python@3.12` on macOS, and run this again.".format(
                THIS_PYTHON, sys.executable, SUITABLE
            )
        )
    try:
        import ensurepip  # noqa: F401  (Debian ships it apart)
    except ImportError:
        raise CannotSetUp(
            "Python {} at {} cannot make virtual environments; install its venv module, with `sudo apt-get install "
            "python{}.{}-venv` on Debian or Ubuntu.".format(THIS_PYTHON, sys.executable, *sys.version_info[:2])
        ) from None


def check_ours():
    """Raise when there is a `.venv` that this script did not begin, or a link: it is about to be emptied."""
    if VENV.is_symlink():
        raise CannotSetUp(
            "{} is a link, and what it leads to may be another project's; remove it, and run this again.".format(VENV)
        )
    if VENV.exists() and not STATE.exists() and any(VENV.iterdir()):
        raise CannotSetUp("{} was made by something else; move it away or delete it, and run this again.".format(VENV))


def makes_venvs(name):
    """Whether a Python of that name is there, starts (a pyenv shim may be there and not start) and brings pip."""
    command, nowhere = shutil.which(name), subprocess.DEVNULL
    return bool(command) and subprocess.call([command, "-c", "import ensurepip"], stdout=nowhere, stderr=nowhere) == 0


def create_venv(wanted):
    """Empty `.venv`, mark it as ours and unfinished, and make it."""
    VENV.mkdir(exist_ok=True)
    for entry in VENV.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(str(entry))
        elif entry != STATE:
            entry.unlink()
    write_state(dict(wanted, complete=False))
    python = getattr(sys, "_base_executable", None) or sys.executable  # not the .venv that is being replaced
    run(python, "-m", "venv", str(VENV))


def pip(*arguments):
    run(str(VENV_PYTHON), "-m", "pip", "install", "--quiet", *arguments)


def run(*command):
    """Run a command quietly; when it fails, show the end of what it printed."""
    misleading = ("PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX")
    environment = {name: value for name, value in os.environ.items() if name not in misleading}
    environment.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1")
    with open(str(LOG), "w+b") as log:
        status = subprocess.call(
            command,
            cwd=str(ROOT),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            close_fds=False,  # a pip that outlives this process goes on holding the lock
        )
        log.seek(0)
        printed = log.read().decode("utf-8", "replace").strip()
    if status:
        print("\n".join(printed.splitlines()[-20:]), file=sys.stderr)
        raise CannotSetUp("set-up failed at `{}`; run it again to repair it.".format(" ".join(command)))


@contextlib.contextmanager
def one_at_a_time():
    """Hold the lock of this checkout; the system lets go of it when this process and its children have ended."""
    with open(str(ROOT / ".setup.lock"), "w") as lock:
        os.set_inheritable(lock.fileno(), True)
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                say("waiting for another set-up of this checkout")
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest(*names):
    contents = hashlib.sha256()
    for name in names:
        contents.update((ROOT / name).read_bytes())
    return contents.hexdigest()


def read_state():
    try:
        return json.loads(STATE.read_text())
    except (OSError, ValueError):
        return {}


def write_state(state):
    scratch = STATE.with_suffix(".new")
    scratch.write_text(json.dumps(state))
    os.replace(str(scratch), str(STATE))


def say(text):
    print("foldhouse: {}".format(text), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
