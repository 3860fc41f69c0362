"""`ladder report`: the whole comparison as one document, from the records alone."""

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import say_warnings
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.places import default_results, is_published, refuse_no_folder, refuse_published

FOURTEEN = (
    *("transformer", "sliding_window", "moe", "mamba", "retention", "hyena", "rwkv4", "rwkv5", "rwkv6"),
    *("lstm", "lstm_block", "xlstm (ratio=0:1)", "xlstm (ratio=1:0)", "xlstm"),
)


@dataclass
class ReportOptions:
    """Write the comparison as a document: report.md, report.html and report.tex with their figures.

    It shows the languages beside the xLSTM paper's values, the climb, board games, cost, text, and what made the
    runs. A section without records is left out. Every number comes from the records. Each section has the command of
    its table.

    `ladder report --results published --out report` writes it from the committed records, `ladder report --models lstm
    'xlstm*' --pdf` from your own.
    """

    results: Path = field(default_factory=default_results)
    """The folder of runs/ and records.csv; `published` for the committed one, with --out."""
    out: Path | None = None
    """The folder to write to; report/ of the results."""
    protocol: tuple[str, ...] = ()
    """Show these protocols alone, by name or label. Without it: published and frozen protocols as they are."""
    models: tuple[str, ...] = ()
    """Show these models alone, by label, name or pattern; '*' for all. Without it: the fourteen of the xLSTM table."""
    against: str = "xlstm"
    """The paper whose values stand beside ours (`ladder table --papers`); '' for none."""
    title: str = "Sequence architectures on formal languages"
    """The title of the document."""
    pdf: bool = False
    """Run pdflatex on it, too."""


def report(words: list[str]) -> int:
    options = parse(ReportOptions, words, prog="ladder report")
    out = options.out or options.results / "report"
    refuse_published(out, otherwise="say where to write with --out FOLDER")
    refuse_no_folder(out)
    if options.pdf and shutil.which("pdflatex") is None:
        raise ValueError("--pdf needs pdflatex, which is not here: leave it out, report.tex is written all the same")
    from chomsky_ladder.harness.config.presets import PROTOCOLS  # with pandas and matplotlib from here on
    from chomsky_ladder.harness.report import formats
    from chomsky_ladder.harness.report.document import Report
    from chomsky_ladder.harness.report.sections import Material, sections
    from chomsky_ladder.harness.stats.chosen import chosen
    from chomsky_ladder.harness.store.record import collect
    from chomsky_ladder.harness.tables.published import published

    if options.against:
        published(options.against)  # before anything is read
    records = collect(options.results)
    say_warnings(records, options.results)
    there = set(records["model"].astype(str))
    models = options.models or tuple(model for model in FOURTEEN if model in there)
    if not models:
        raise ValueError(
            f"no record in {options.results} is of the fourteen models: say --models '*' for all there are"
        )
    labels = sorted(set(records["protocol"].astype(str)))
    known = [label for label in labels if label in PROTOCOLS and not PROTOCOLS[label].remark]
    if not (options.protocol or known):
        others = ", ".join(map(repr, labels)) or "none"
        raise ValueError(f"no record is of a published or frozen protocol as it is; --protocol takes others: {others}")
    protocols = options.protocol or tuple(known)
    records = chosen(records, protocols=protocols, models=() if models == ("*",) else models)
    place = "published" if is_published(options.results) else str(options.results)
    words_of = [f" --results {shlex.quote(place)}"] if options.results != default_results() else []
    words_of += [f" --models {shlex.join(models)}"] if models != ("*",) else []
    made = sections(Material(records, options.results, out, options.against, "".join(words_of)))
    if not made:
        raise ValueError("nothing to compare: a report needs two models on two tasks of one protocol, or a climb")
    about = (
        f"Made by `ladder report` from {len(records):,} records.",
        "Accuracies are scaled: 0 is chance, 1 is perfect. A miss at these budgets is no proof that a model cannot.",
    )
    whole = Report(options.title, about, tuple(made))
    files = {"report.md": formats.markdown(whole, out), "report.html": formats.html(whole)}
    files["report.tex"] = formats.document(whole, out)
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(out / name, content.encode())
    print(f"written: {out}/report.html, .md, .tex, and {sum(len(one.pictures) for one in made)} figures")
    return _pdf(out) if options.pdf else 0


def _pdf(out: Path) -> int:
    """Run pdflatex twice, as references need; its last words where it gives up."""
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=out, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            print(f"ladder: pdflatex gave up; {out}/report.log says why", file=sys.stderr)
            return 1
    print(f"written: {out}/report.pdf")
    return 0
