"""The commands of `ladder`: what each one does, where its function is, and the groups that help lists them in."""

import os
import textwrap
from typing import NamedTuple


class Command(NamedTuple):
    place: str
    """module:function in this room."""
    about: str
    group: str


GROUPS = {
    "explore": "what there is",
    "train": "runs, sweeps and climbs",
    "inspect": "what a model does, and what it costs",
    "publish": "tables, figures and pages from records",
    "maintain": "records and this machine",
}
COMMANDS: dict[str, Command] = {
    "list": Command("catalogue:list_parts", "tasks and models", "explore"),
    "describe": Command("parts:describe_part", "a task, model or protocol: example, settings, theory", "explore"),
    "sample": Command("parts:sample", "strings of a task with their answers", "explore"),
    "export": Command("parts:export", "strings of a task as a file with its hash", "explore"),
    "check": Command("parts:check", "test that a task or model, yours or ours, keeps its promises", "train"),
    "climb": Command("climb:climb", "train a model on all twelve rungs and write its report card", "train"),
    "run": Command("run:run", "train and score one model on one task", "train"),
    "plan": Command("sweeps:plan_sweep", "estimate the hours of a sweep", "train"),
    "sweep": Command("sweeps:sweep_script", "train the runs of a script that are not done yet", "train"),
    "study": Command("study:study", "a sweep of the literature, with its tables", "train"),
    "status": Command("records:status", "which runs are done, running or broken", "train"),
    "adapt": Command("adapt:adapt", "fit a trained model to another task by low-rank factors", "train"),
    "errors": Command("inside:errors", "where a trained model fails", "inspect"),
    "generate": Command("generate:generate", "what a trained model writes: greedy, drawn or by beam", "inspect"),
    "horizon": Command("horizon:horizon", "how far a model holds on strings of 10,000 symbols and more", "inspect"),
    "ablate": Command("ablate:ablate", "which layers of a model the answers need", "inspect"),
    "probe": Command("inside:probe", "the task's state in the model, layer by layer", "inspect"),
    "intervene": Command("inside:intervene", "edit the board in the model: do its moves follow?", "inspect"),
    "worldmodel": Command("worldmodel:worldmodel", "how well a model tells states apart", "inspect"),
    "throughput": Command("throughput:throughput", "speed, memory and state of models here", "inspect"),
    "diff": Command("records:diff", "the settings in which two runs differ", "inspect"),
    "table": Command("tables:table", "tables of the records, as text, Markdown, LaTeX, CSV or HTML", "publish"),
    "figures": Command("figures:figures", "figures as PNG, SVG, PDF and CSV", "publish"),
    "report": Command("report:report", "the comparison as one document: Markdown, HTML, LaTeX", "publish"),
    "page": Command("page:page", "an interactive page in one file", "publish"),
    "track": Command("track:track", "copy runs to a tracker: W&B, trackio, a plugin's", "publish"),
    "wandb": Command("wandb:wandb", "runs, tables and a report at Weights & Biases", "publish"),
    "export-results": Command("hub:export_results", "results and test strings as a data set", "publish"),
    "export-model": Command("hub:export_model", "the weights of a run as safetensors", "publish"),
    "submit": Command("submit:submit", "a climb in a folder that others can verify", "publish"),
    "verify": Command("submit:verify", "check a submission, and train some of it again", "publish"),
    "merge": Command("records:merge", "take runs from another machine's folder", "maintain"),
    "reproduce": Command("reproduce:reproduce", "train a recorded run again and compare it, bit for bit", "maintain"),
    "clean": Command("records:clean", "remove runs or their checkpoints", "maintain"),
    "doctor": Command("doctor:doctor", "check this machine: devices, kernels, packages", "maintain"),
    "completion": Command("completion:completion", "let a shell complete these commands", "maintain"),
}
EXAMPLES = {
    "ladder climb lstm": "what an LSTM holds, from the runs on record",
    "ladder run parity lstm --protocol quick": "train one run, ten seconds",
    "ladder table": "a table of what you ran",
}


def usage(columns: int) -> str:
    """Return the help of `ladder` itself: examples, the commands by group, what holds for all."""
    lines = ["ladder: sequence models on the Chomsky hierarchy", ""]
    wide = max(map(len, EXAMPLES))
    for example, about in EXAMPLES.items():
        whole = f"  {example:{wide}}   {about}"
        lines.append(whole if len(whole) < columns else f"  {example}")
    width = max(map(len, COMMANDS))
    for group, about in GROUPS.items():
        lines += ["", f"{group}: {about}"]
        for name, command in COMMANDS.items():
            if command.group == group:
                first, *more = textwrap.wrap(command.about, max(20, columns - width - 5))
                lines += [f"  {name:{width}}  {first}", *(f"  {'':{width}}  {line}" for line in more)]
    common = (
        "A MODEL is a name of `ladder list`, or a torch module of your own: my_package.layers:Mine or layers.py:Mine. "
        "Every command takes --help, and --plugin FOLDER, FILE or MODULE for tasks and models of your own; "
        f"$LADDER_PLUGINS names such for all commands, separated by {os.pathsep!r}."
    )
    return "\n".join([*lines, "", *textwrap.wrap(common, columns - 1)])
