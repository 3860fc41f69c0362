// How to add a model, a task, or results of one's own.

const modelFile = `# mine.py
import torch
from torch import nn
from chomsky_ladder.models.plain import plain_model


class Mean(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):  # [batch, length, d_model] in and out, causal
        return self.out(x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None])


plain_model("my_mean", Mean)`;

views.add = {
  title: () => "Add your model",
  lead: () => [make("p", { class: "lead" }, "An ordinary PyTorch module on [batch, length, width] in a file of your own is enough. It climbs the same rungs at the same size, and its card stands beside these.")],
  controls: () => [],
  body() {
    const ladder = data.ladders[0];
    const count = ladder ? `${ladder.rungs.length} rungs, ${ladder.seeds} seeds, ${protocols[ladder.protocol].rates.length} learning rates: ${ladder.rungs.length * ladder.seeds * protocols[ladder.protocol].rates.length} runs, most of an hour of two cores for a model of middling speed.` : "";
    const step = (title, ...children) => make("li", {}, make("b", {}, title), children);
    return [make("ol", { class: "steps" },
      step("Write it.", copyable(modelFile)),
      step("Check it:", note("Is it causal, does every parameter learn, do packing and stepping agree?"), copyable("ladder check my_mean --plugin mine.py")),
      step("Let it climb.", note(count, " Ctrl-C stops it, the same command goes on."), copyable("ladder climb my_mean --plugin mine.py"), copyable("ladder climb my_mean --plugin mine.py --against lstm transformer")),
      step("Look at it here:", note("This page of your own results, on a port of your machine; or a folder that any web host can serve."), copyable("ladder page --serve"), copyable("ladder page --out site/")),
      step("Say what is proven of it.", note("A model that declares how its state moves (`transition`) has its theory in the corners of its boxes."), copyable("ladder describe lstm")),
      step("Submit it.", note("A folder with the card, the records and your code. A submission is shown as self-reported, and as reproduced once somebody else has trained cells of it again."), copyable('ladder submit my_mean --plugin mine.py --name "My mean" --cite "our paper"'))),
    heading("A task of yours"),
    note("A regular language is a line; anything else is a file of its own that is held to an oracle."),
    copyable("ladder run regular lstm --task.pattern '(ab|ba)*'"),
    heading("Strings for another harness"),
    copyable("ladder export parity --out parity.jsonl --count 8192")];
  },
  sheet: () => [["step", "command"], ["check", "ladder check my_mean --plugin mine.py"], ["climb", "ladder climb my_mean --plugin mine.py"], ["page", "ladder page --serve"]],
};
