"""`labkit course`: build, run and publish the notebooks; progress and submission. `labkit claims`: the verdicts."""

import argparse
import sys
from pathlib import Path
from typing import Any

import labkit_course as course
from labkit import UserError, hardware, runs
from labkit.cli.console import Console, print_frame
from labkit.cli.flags import add_command, commands_of, refuse_unless_positive


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    commands = commands_of(add_command(subparsers, "course"))
    build, run, site, slides, status, submit, new, collect, grade, grades, alike, defence, cost, register, capstone = (
        add_command(commands, name, words, run=run)
        for name, run, words in (
            ("build", run_build, "make the exercise notebooks from the authored ones in solutions/"),
            ("run", run_run, "execute notebooks and judge what came out"),
            ("site", run_site, "make a static site of the notebooks"),
            ("slides", run_slides, "make at most eight slides of each lab, from its headings"),
            ("status", run_status, "what is done and what is next (kept on this machine only)"),
            ("submit", run_submit, "pack notebooks, own modules, runs and progress into one archive"),
            ("new", run_new, "make an nbgrader course for a class, or bring it up to date"),
            ("collect", run_collect, "put archives of `labkit course submit` into a course"),
            ("grade", run_grade, "grade what was collected, each answer in a sandbox"),
            ("grades", run_grades, "write the grades of a course as a CSV file"),
            ("alike", run_alike, "pairs of students whose answers to a lab share code"),
            ("defence", run_defence, "five questions to each student about what the student handed in"),
            ("cost", run_cost, "what a syllabus costs: minutes, joules, dollars and disk"),
            ("register", run_register, "register a plan before its runs begin: docs/capstone.md"),
            ("capstone", run_capstone, "judge the runs of a registered plan"),
        )
    )

    for command in (new, collect, grade, grades, alike, defence):
        command.add_argument("place", type=Path, metavar="DIR", help="folder of the course")

    build.add_argument("--check", action="store_true", help="change nothing; fail where something is out of order")
    words = "where answers are in the way, keep them next to the new notebook"
    build.add_argument("--force", action="store_true", help=words)

    run.add_argument("which", nargs="*", metavar="NOTEBOOK", help="paths or numbers (default: all in solutions/)")
    run.add_argument("--profile", default="smoke", choices=("smoke", "standard", "full"), help="default: smoke")
    run.add_argument("--variants", action="store_true", help="with other right ways to write the exercises")
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at once (default: 1)")
    run.add_argument("--out", type=Path, default=Path("course-run"), metavar="DIR", help="default: course-run")
    one_more: dict[str, Any] = {"nargs": 2, "action": "append", "default": [], "metavar": ("NAME", "VALUE")}
    run.add_argument("-p", "--parameter", help="one more parameter", **one_more)

    made = Path("course-run")
    who = ("students", "instructors")
    words = "students: no solutions, no rubrics, no results; instructors (default): all, of what was executed"
    site.add_argument("--for", dest="readers", choices=who, default="instructors", help=words)
    site.add_argument("--executed", type=Path, default=made, metavar="DIR", help="what `course run` made")
    site.add_argument("--out", type=Path, default=Path("site"), metavar="DIR", help="default: site")

    slides.add_argument("which", nargs="*", metavar="NOTEBOOK", help="paths or numbers (default: all in solutions/)")
    words = "figures are taken from here, where a lab was executed"
    slides.add_argument("--executed", type=Path, default=made, metavar="DIR", help=words)
    slides.add_argument("--out", type=Path, default=Path("slides"), metavar="DIR", help="default: slides")

    submit.add_argument("--runs", type=Path, metavar="DIR", help="run folders (default: runs in the notebooks' folder)")
    submit.add_argument("--lab", default="", metavar="NN", help="this lab only (default: all that were worked in)")
    submit.add_argument("--student", default="", metavar="NAME", help="who hands in, as your course names you")
    submit.add_argument("--out", type=Path, metavar="FILE", help="default: submission.zip, or NAME and NN")

    new.add_argument("--students", type=Path, required=True, metavar="CSV", help="roster with the column student")
    new.add_argument("--labs", nargs="+", default=[], metavar="NN", help="default: all")
    words = "when a lab is due, such as 10=2026-12-10T23:59+01:00; may be repeated"
    new.add_argument("--due", action="append", default=[], metavar="NN=TIME", help=words)

    collect.add_argument("archives", nargs="+", type=Path, metavar="ZIP")

    grade.add_argument("--labs", nargs="+", default=[], metavar="NN", help="default: all that were handed in")

    grades.add_argument("--for", dest="form", choices=("csv", "canvas", "moodle"), default="csv", help="default: csv")
    words = "what a late hand-in loses of its points for each hour, day or week that has begun, such as 10%%/day"
    grades.add_argument("--late", default="", metavar="SHARE/TIME", help=words)
    grades.add_argument("--out", type=Path, default=Path("grades.csv"), metavar="FILE", help="default: grades.csv")

    alike.add_argument("lab", metavar="NN")

    defence.add_argument("archives", nargs="+", type=Path, metavar="ZIP", help="of `labkit course submit`")
    defence.add_argument("--seed", type=int, default=0, metavar="N", help="another one draws others (default: 0)")

    cost.add_argument("syllabus", type=Path, metavar="FILE", help="such as notebooks/syllabi/seven_weeks.md")
    cost.add_argument("--executed", type=Path, default=made, metavar="DIR", help="what `course run` made")
    cost.add_argument("--students", type=int, default=25, metavar="N", help="in the class (default: 25)")
    cost.add_argument("--cores", type=int, default=2, metavar="N", help="of each student (default: 2)")
    cost.add_argument("--hub-cores", type=int, default=16, metavar="N", help="that they share (default: 16)")

    register.add_argument("plan", type=Path, metavar="PLAN", help="a TOML file")

    for command in (register, capstone):
        command.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="run folders: runs")

    inside = any(Path().glob("[0-9][0-9]_*.ipynb"))
    where: dict[str, Any] = {"type": Path, "default": Path() if inside else Path("notebooks"), "metavar": "DIR"}
    for command in (build, run, site, slides, status, submit, new):
        command.add_argument("--notebooks", help="where they are: notebooks", **where)

    parser = add_command(subparsers, "claims", run=run_claims)
    words = "take verdicts of these notebooks, as course run left them"
    parser.add_argument("--executed", type=Path, metavar="DIR", help=words)
    parser.add_argument("--out", type=Path, default=Path("docs"), metavar="DIR", help="where they go: docs")


def run_build(args: argparse.Namespace) -> int:
    try:
        drift, write = course.drift, course.write
    except ImportError as error:
        raise UserError(
            'building the exercises needs nbgrader: install it with `python -m pip install -e ".[course]"`.'
        ) from error
    if args.check:
        found = drift(args.notebooks)
        print(*(found or ["The notebooks are in order."]), sep="\n")
        return 1 if found else 0
    changed = write(args.notebooks, force=args.force)
    print(*([f"wrote {path}" for path in changed] or ["Nothing to change."]), sep="\n")
    return 0


def run_run(args: argparse.Namespace) -> int:
    refuse_unless_positive(jobs=args.jobs)
    console = Console(soft_wrap=True)
    executed = course.run_notebooks(
        [_find(which, args.notebooks) for which in args.which] or course.authored(args.notebooks),
        args.out,
        parameters={"profile": args.profile} | {name: course.literal(value) for name, value in args.parameter},
        variants=args.variants,
        jobs=args.jobs,
        limits=course.PROFILES[args.profile],
        say=console.print,
    )
    rows = []
    for each in executed:
        memory = hardware.size_text(each.peak_memory_bytes)
        row = {"notebook": each.source.stem, "time": f"{each.seconds:.1f} s", "peak memory": memory}
        rows.append(row | {"cells": each.cells, "figures": each.figures, "verdict": each.verdict})
    print_frame(console, rows)
    for each in executed:
        for fault in each.faults:
            console.print(f"{each.source}: {fault}")
    if any(each.out.exists() for each in executed):
        console.print(f"As web pages: {course.build_site(args.out, args.out / 'html')}")
    console.print(f"Executed notebooks: {args.out}")
    return 1 if any(each.faults for each in executed) else 0


def run_site(args: argparse.Namespace) -> None:
    students = args.readers == "students"
    folder = course.authored(args.notebooks)[0].parent if students else args.executed
    print(f"Open {course.build_site(folder, args.out, students=students).resolve()}")


def run_slides(args: argparse.Namespace) -> None:
    for path in [_find(which, args.notebooks) for which in args.which] or course.authored(args.notebooks):
        executed = args.executed / path.name
        made, count = course.build_slides(executed if executed.is_file() else path, args.out)
        print(f"{made}: {count} slides{'' if executed.is_file() else ', without the figures of a run'}.")


def run_status(args: argparse.Namespace) -> None:
    console = Console(soft_wrap=True)
    print_frame(console, course.status(args.notebooks))
    console.print(f"Kept in {course.progress_file()}, on this machine only.")


def run_submit(args: argparse.Namespace) -> None:
    if Path(args.student).name != args.student:
        raise UserError(f"--student {args.student}: a name has no / in it, since the archive is called by it.")
    archive = args.out or Path("-".join(filter(None, [args.student or "submission", args.lab])) + ".zip")
    count, said = course.hand_in(args.notebooks, args.runs or args.notebooks / "runs", archive, args.lab, args.student)
    print(f"{archive}: {count} files, {hardware.size_text(archive.stat().st_size)}.")
    for notebook, names in said["missing"].items():
        print(f"{notebook}: not answered: {', '.join(names)}.")
    for notebook, damage in said["damage"].items():
        print(f"{notebook}: {'; '.join(damage)}.")
    if said["links"]:
        print(f"Left out, as links may lead anywhere: {', '.join(said['links'])}.")
    if drawn := [name for name, number in said["numbers"].items() if number == 0]:
        print(f"{', '.join(drawn)}: `student` is 0: set it to your number if your course gave you one.")


def run_new(args: argparse.Namespace) -> None:
    from labkit_course import classroom

    notebooks = [_find(lab, args.notebooks) for lab in args.labs] or course.authored(args.notebooks)
    students = classroom.read_roster(args.students)
    due = classroom.due_dates(args.due, [path.stem for path in notebooks])
    released = classroom.make_course(args.place, students, notebooks, due)
    print(f"{args.place}: {len(students)} students, {len(notebooks)} labs, of which {len(released)} were released now.")
    for lab, when in due.items():
        print(f"{lab} is due on {when:%Y-%m-%d} at {when:%H:%M} UTC.")
    print(f"Hand out {args.place / 'release'}, and each student's number: {args.place / classroom.ROSTER}.")


def run_collect(args: argparse.Namespace) -> None:
    from labkit_course import classroom

    print(*classroom.collect_archives(args.place, args.archives), sep="\n")


def run_grade(args: argparse.Namespace) -> int:
    from labkit_course.grades import grade_class, grades_of, labs_handed_in

    print(course.sandbox()[1])
    labs = labs_handed_in(args.place, args.labs)
    failed = [why for lab in labs for why in grade_class(args.place, lab)]
    print(*failed, sep="\n", end="\n" * bool(failed))
    found = grades_of(args.place)
    by_hand = sum(each.by_hand for each in found)
    print(f"{len(found)} notebooks are graded, {by_hand} of them wait for grades by hand: `nbgrader formgrade`.")
    return 1 if failed else 0


def run_grades(args: argparse.Namespace) -> None:
    from labkit_course.grades import write_grades

    print(*write_grades(args.place, args.form, args.out, args.late), sep="\n")


def run_alike(args: argparse.Namespace) -> None:
    from labkit_course.classroom import alike
    from labkit_course.grades import labs_handed_in

    (lab,) = labs_handed_in(args.place, [args.lab])
    pairs = alike(args.place, lab)
    if pairs:
        rows = [{"alike": f"{share:.0%}", "student": one, "and": other} for share, one, other in pairs]
        print_frame(Console(soft_wrap=True), rows)
    print("These pairs share at least half of their code." if pairs else "No two share half of their code.")


def run_defence(args: argparse.Namespace) -> None:
    from labkit_course.defence import sheets

    made, said = sheets(args.place, args.archives, args.seed)
    print(*said, sep="\n", end="\n" * bool(said), file=sys.stderr)
    print(*made, sep="\n", end="")


def run_cost(args: argparse.Namespace) -> None:
    from labkit_course import expenses

    turns = expenses.sittings(args.students, args.cores, args.hub_cores)
    found = [expenses.expense(lab, args.executed) for lab in expenses.labs_of(args.syllabus)]
    columns = ("minutes", "runs", "energy_j", "cost_usd", "disk_bytes")
    values = {name: [getattr(each, name) for each in found] for name in columns}
    totals: dict[str, Any] = {name: None if None in own else sum(own) for name, own in values.items()}
    rows = [{"lab": each.lab} | {name: getattr(each, name) for name in columns} for each in found]
    print_frame(Console(soft_wrap=True), [_in_units(row) for row in [*rows, {"lab": "a student"} | totals]])
    kinds = ", ".join(sorted({kind for each in found for kind in each.kinds}))
    print(f"Measured in {args.executed}. Of its runs: kJ ({kinds or 'not known'}) and USD (rental, by the catalogue).")
    at_once, hours = args.hub_cores // args.cores, totals["minutes"] / 60 * args.cores * args.students
    disk = hardware.size_text(args.students * totals["disk_bytes"])
    print(f"{args.students} students with {args.cores} cores each: {hours:.1f} core-hours and {disk} of disk.")
    print(f"{at_once} of them have their own cores among {args.hub_cores}: timed cells take {turns} turns.")
    memory = f"{args.students * expenses.SEAT_GB:g} GB for all, {at_once * expenses.SEAT_GB:g} GB for one turn"
    print(f"{expenses.SEAT_GB:g} GB of memory each: {memory}. Profiles of this size for a hub: binder/hub.yaml.")


def _in_units(row: dict) -> dict:
    """A row of expenses as people read it."""
    kj = None if row["energy_j"] is None else f"{row['energy_j'] / 1e3:.1f}"
    usd = None if row["cost_usd"] is None else f"{row['cost_usd']:.4f}"
    shown = {"lab": row["lab"], "minutes": f"{row['minutes']:.1f}", "runs": row["runs"], "kJ": kj, "USD": usd}
    return shown | {"disk": hardware.size_text(row["disk_bytes"])}


def run_register(args: argparse.Namespace) -> None:
    from labkit_course import capstone

    made = capstone.register(args.plan, args.runs)
    plan = made.plan
    print(f"Registered at {made.registered_at}, SHA-256 {made.sha256}.")
    print(f"{len(plan.seeds)} pairs under each of {' and '.join(plan.budgets)}; a power of 80 % needs {plan.needed}.")
    print(f"Run it: labkit sweep {args.runs / capstone.SWEEP} --runs-dir {args.runs}")


def run_capstone(args: argparse.Namespace) -> None:
    from labkit_course import capstone

    made = capstone.read_register(args.runs)
    found, console = capstone.judge(made, args.runs), Console(soft_wrap=True)
    console.print(f"{made.plan.question} Registered at {made.registered_at}, SHA-256 {made.sha256}.")
    for title, frame in (
        ("what was run", found.cells),
        (f"times as fast with {made.plan.setting} {made.plan.values[1]}: pairs, 95 % interval", found.effects),
        (f"intervals for {made.plan.level:.0%} of the runs: interval score of logarithms", found.calibration),
    ):
        print_frame(console, frame.map(lambda value: f"{value:.3g}" if isinstance(value, float) else value), title)
    print(*found.remarks, sep="\n", end="\n" * bool(found.remarks))


def run_claims(args: argparse.Namespace) -> None:
    if args.executed:
        table = args.out / "reproductions.csv"
        rows = course.collect(args.executed, course.read_evidence(table))
        course.write_evidence(table, rows)
        runs.replace_text(args.out / "reproductions.md", course.page(rows))
        print(f"{len(rows)} verdicts: {table}, {args.out / 'reproductions.md'}")
        return
    latest = {entry["name"].rpartition(".")[2]: entry for entry in course.kept("claim")}
    console = Console(soft_wrap=True)
    rows = []
    for id, paper in course.all_claims().items():
        mine = latest.get(id, {})
        rows.append({"id": id} | {key: paper[key] for key in ("paper", "claim", "number")})
        rows[-1] |= {key: str(mine.get(key, "")) for key in ("mine", "verdict", "reason")}
    print_frame(console, rows)
    console.print(f"{len(latest)} of {len(course.all_claims())} claims are judged.")


def _find(which: str, folder: Path) -> Path:
    """The notebook of a path, or the authored one whose name begins so."""
    if which.endswith(".ipynb"):
        return Path(which)
    found = [path for path in course.authored(folder) if path.name.startswith(which)]
    if len(found) != 1:
        names = ", ".join(path.stem for path in course.authored(folder))
        what = f"{which!r} names {len(found) or 'no'} notebooks"
        raise UserError(f"{what}: give a path, or the beginning of one of {names}.")
    return found[0]
