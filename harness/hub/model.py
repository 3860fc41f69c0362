"""Write the weights of a trained run for other programs: safetensors, the run's config, and a loader.

model.safetensors   the weights, and of the run its id and step
config.json         every setting of the run
load.py             makes the model from the two, with this package installed
"""

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.build import restored

WEIGHTS, CONFIG, LOADER = "model.safetensors", "config.json", "load.py"
_LOADER = '''"""model, task = load()    the model as it was scored, on the CPU, and its task"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.train.build import build_model

HERE = Path(__file__).parent


def load():
    run = Run.from_plain(json.loads((HERE / "config.json").read_text()))
    model = build_model(run, torch.device("cpu")).eval()
    weights = load_file(HERE / "model.safetensors")
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return model, run.task
'''


def export_model(folder: RunFolder, to: Path) -> dict[str, Any]:
    """Write the newest weights of a run to a new folder, and return what was written."""
    try:
        from safetensors.torch import save_file
    except ImportError:
        raise ValueError("safetensors is missing: pip install 'chomsky-ladder[hub]'") from None
    if to.exists() and any(to.iterdir()):
        raise ValueError(f"{to} is there already and not empty")
    run, model, step = restored(folder)
    to.mkdir(parents=True, exist_ok=True)
    weights = _apart(model.state_dict())
    save_file(weights, to / WEIGHTS, {"format": "pt", "run_id": run.run_id, "step": str(step)})
    shutil.copyfile(folder.path / "config.json", to / CONFIG)
    write_atomically(to / LOADER, _LOADER.encode())
    return {"run_id": run.run_id, "step": step, "tensors": len(weights), "bytes": (to / WEIGHTS).stat().st_size}


def _apart(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors that share no memory, as safetensors asks for; tied weights are written twice."""
    return {name: tensor.detach().clone().contiguous() for name, tensor in state.items() if torch.is_tensor(tensor)}
